"""Slurm's programs print nonsense: a job is then unknown, nothing is submitted unnoticed, and no run is hidden."""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
from pathlib import Path

from damage import damaged
from job_files import PLAN, submitted_run
from tally import Tally, attack, guarded

from benchmarker import Allocation, UserError
from benchmarker.hooks import launchers
from benchmarker.running import site

PRINTED = {
    "squeue": b"JOBID|STATE|NODELIST|REASON\n7|RUNNING|node1|None\n8|PENDING||Resources\n",
    "sbatch": b"12\n",
    "scontrol": b"JobId=7 JobState=RUNNING Restarts=0 Requeue=1 NodeName=node1 NodeAddr=10.0.0.1 State=IDLE\n",
    "scancel": b"",
}
NONSENSE = (
    *(b"", b"\n", b"\0", b"\xff\xfe", b"\x1b[2J\x07", b"<html>", b"{}", b"9" * 5000, b"x" * 3_000_000),
    *(b"|", b"|||||", b"7", b"7|", b"7|RUNNING\n", b"7|RUNNING|a|b|c|d\n", b"7|\xff|\x1b[31m|\x85\n"),
    *(b"slurm_load_jobs error: Unable to contact slurm controller\n", b"error: ", b"JOBID|STATE|NODELIST|REASON\n"),
    *(b"Restarts=-1 ", b"Restarts=many ", b"JobState= ", b"=\n", b"a=b " * 1000, b"NodeName=\xff State=* "),
)
COMMANDS = (("jobs", "--json"), ("jobs",), ("submit", "plan.toml", "--launcher=slurm", "--json"))


def attacks(count: int, rng: random.Random) -> Tally:
    """Let the programs print something, and ask for jobs, submit one, and ask as a run in a job does."""
    tally = Tally()
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        os.environ["PATH"] = f"{name}/programs:{before}"
        Path("site.toml").write_text("")
        os.environ[site.VARIABLE] = str(Path("site.toml").absolute())
        Path("plan.toml").write_text(PLAN)
        Path("programs").mkdir()
        runs = [submitted_run("slurm", number) for number in ("7", "8")]
        for _ in range(count):
            strike(runs, rng, tally)
        os.environ["PATH"] = before
    return tally


def strike(runs: list[Path], rng: random.Random, tally: Tally) -> None:
    """Let each program print nonsense, or what it should with some damage, on either output and with any status."""
    label = ""
    for program, sound in PRINTED.items():
        printed = b"".join(rng.choices(NONSENSE, k=rng.randint(1, 4)))
        if sound and rng.random() < 0.5:
            printed = damaged(sound, rng)
        Path(f"programs/{program}.txt").write_bytes(printed)
        output, status = rng.choice(("1", "1", "2")), rng.choice((0, 0, 0, 1, 127))
        path = Path("programs", program)
        path.write_text(f"#!/bin/sh\ncat {path.absolute()}.txt >&{output}\nexit {status}\n")
        path.chmod(0o755)
        label += f"{program} ({output}, {status}): {printed[:100]!r}; "
    for words in COMMANDS:
        done = attack(words, label, tally)
        if done is None:
            continue
        if words[0] == "submit":
            check_submission(runs, done, label, tally)
        elif "--json" in words and sorted(each["folder"] for each in json.loads(done[1])) != [*map(str, runs)]:
            tally.bad("lost", f"{words}: {label}")
    tally.attacks += 1
    with guarded(f"in a job: {label}", tally), contextlib.suppress(UserError):
        within = Allocation("slurm", "7", ["node1"], 0)
        launchers.ending(within)
        launchers.requeue(within)
        launchers.lost_nodes(within)
        launchers.load_launcher("slurm").address("node1")


def check_submission(runs: list[Path], done: tuple[int, str], label: str, tally: Tally) -> None:
    """Check that a submission is known by its number, or has left nothing, and take it away."""
    (*more,) = sorted(set(Path("results").iterdir()) - {*runs})
    if len(more) != (done[0] == 0):
        tally.bad("left lying", f"{more}: {label}")
    elif more and not json.loads(done[1])["job"].isdecimal():
        tally.bad("lost", f"{done[1]}: {label}")
    for path in more:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
