"""A worker's reader: whatever ends it ends the worker, which says why."""

import subprocess
import sys

import pytest

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
