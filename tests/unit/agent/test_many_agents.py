"""What an agent takes of the parent: open files, and a look at those processes alone that have something to tell."""

from __future__ import annotations

import resource
import subprocess
import time

import pytest

from benchmarker.agent import remote
from benchmarker.worker.pipes import Child, listen


@pytest.fixture
def files():
    """Restore the limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_of_open_files_is_raised_as_far_as_it_may_be(files):
    _, hard = files
    for number, limit in ((10, 522), (10**9, hard)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
        remote.allow_files(number)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)
    remote.allow_files(10)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)  # a high one stays


def started(script: str, heard: list[bytes]) -> Child:
    words = ["/bin/sh", "-c", script]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return Child(subprocess.Popen(words, bufsize=0, **pipes), heard.append, heard.append)


def test_processes_are_heard_to_their_ends_whenever_they_end():
    heard: list[bytes] = []
    children = [started(script, heard) for script in ("echo a", "sleep 0.3; echo b", "echo c; sleep 0.1", "exit 3")]
    children[3].process.wait()  # seen to have ended before anyone listens
    assert listen(children, time.monotonic() + 20, lambda: False)
    assert sorted(b"".join(heard).split()) == [b"a", b"b", b"c"]
    assert [child.process.returncode for child in children] == [0, 0, 0, 3]
    for child in children:
        for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
            pipe.close()
