"""The parent's side of a worker that does not come as far as its task."""

import time

import pytest

from benchmarker.worker.launch import ending_text, run_worker
from benchmarker.worker.protocol import Task

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
