"""A machine that was really measured on a part of its cores, beside other work."""

import os
import subprocess
import sys

import pytest

RUN = ("run", "--framework=toy", "--problem=nap", "--ms=5", "--seconds=0.6", "--power=none")


@pytest.fixture
def one_core_and_a_busy_loop():
    """Restrict this process and its children to one core, which a loop keeps busy."""
    if not hasattr(os, "sched_setaffinity") or len(cores := os.sched_getaffinity(0)) < 2:
        pytest.skip("it needs a system with affinity, and two cores")

    def begin():
        os.sched_setaffinity(0, {min(cores)})
        loops.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))

    loops: list[subprocess.Popen[bytes]] = []
    yield begin
    os.sched_setaffinity(0, cores)
    for loop in loops:
        loop.kill()
        loop.wait()


def test_a_machine_measured_on_one_core_beside_other_work_is_told(cli, one_core_and_a_busy_loop):
    assert cli(*RUN, "--results=whole").returncode == 0
    one_core_and_a_busy_loop()
    told = cli(*RUN, "--results=part").stdout
    assert "1 of 1 trial was disturbed, for instance: other processes kept " in told
    done = cli("suite", "score", "whole", "part", "--strict")
    assert done.returncode == 3
    assert "B  part: 1 of 1 trial succeeded (100%), 1 disturbed" in done.stdout
    assert f"  warning (B): measured on 1 of {os.cpu_count()} cores" in done.stdout
    assert "(provisional)" in done.stdout
    assert " usable_cores " in done.stdout
