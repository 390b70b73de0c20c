"""A worker's reader: whatever ends it ends the worker, which says why."""

import subprocess
import sys
import time

import pytest

from benchmarker.worker.launch import ending_text, run_worker
from benchmarker.worker.protocol import Task

WORKER = """
import sys, time
from benchmarker.worker.parent import Parent
from benchmarker.worker.protocol import lines
Parent(lines(0), None)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "the worker was told what is not valid: a line that is not a message: {"),
        (b"\xff", "the worker was told what is not valid: a line that is not a message: \N{REPLACEMENT CHARACTER}"),
        (b'{"address":{"host":1}}', "the worker was told what is not valid: address.host: Expected `str`, got `int`"),
        (b'{"stacks":true}', "AttributeError: 'NoneType' object has no attribute 'send'"),
    ],
)
def test_a_worker_whose_reader_ends_does_too(line: bytes, said: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", WORKER], **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(line + b"\n")
        process.stdin.flush()  # and the pipe stays open
        try:
            assert process.wait(10) == 1
        finally:
            process.kill()
        assert process.stderr.read().decode().splitlines()[-1] == said


DYING = """
import os, sys
if "benchmarker.worker" in sys.orig_argv:
    sys.stderr.write("{noise}no such library\\n" )
    sys.stderr.flush()
    os._exit(3)
"""


@pytest.mark.parametrize(("name", "noise"), [("toy", "." * 300_000 + r"\n"), ("x" * 300_000, "")])
def test_a_worker_that_ends_before_it_reads_its_request_says_why(tmp_path, name, noise):
    (tmp_path / "sitecustomize.py").write_text(DYING.replace("{noise}", noise))
    log = tmp_path / "log"
    start = time.monotonic()
    ending = run_worker(Task(kind="describe", framework=name), {"PYTHONPATH": str(tmp_path)}, 20, log, print)
    assert time.monotonic() - start < 15
    assert ending_text(ending, log) == "the worker ended with status 3: no such library"
