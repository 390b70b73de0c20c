"""Damaged files of a submitted run: `jobs` shows every run all the same, and the sound one as it is."""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
from pathlib import Path

from damage import INSTEAD, damaged, put_instead, take_away
from tally import Tally, attack, call

from benchmarker.machine import description
from benchmarker.machine.description import installed
from benchmarker.records import job as jobs
from benchmarker.records import store
from benchmarker.running import site

PLAN = 'problem = "gemm"\nframework = "numpy"\nm = 8\ntrials = 2\n[measuring]\nblocks = 2\npower = "none"\n'
FILES = (store.JOB, store.JOB, store.JOB, f"{store.ATTEMPT}0.json", store.PLAN, store.PLAN_FILE, "record")


def attacks(count: int, rng: random.Random) -> Tally:
    """Damage one file of one of two submitted runs, and ask for the jobs."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("site.toml").write_text("")
        os.environ[site.VARIABLE] = str(Path("site.toml").absolute())
        sound_run, damaged_run = (submitted_run("local", "elsewhere:7:1.00") for _ in range(2))
        call(("plan", "run", str(damaged_run)))
        sound = row(sound_run, "", tally)
        (record, _) = sorted(damaged_run.glob("2*.json"))
        for _ in range(count):
            file = rng.choice(FILES)
            path = record if file == "record" else damaged_run / file
            before = path.read_bytes()
            if rng.random() < 0.2:
                content = rng.choice(INSTEAD).encode()
                put_instead(path, content.decode())
            else:
                content = damaged(before, rng)
                path.write_bytes(content)
            label = f"{file}: {content[:200]!r}"
            if row(sound_run, label, tally) != sound:
                tally.bad("lost", f"a sound run is not shown as it is beside {label}")
            for words in (("jobs",), ("jobs", str(damaged_run)), ("submit", str(damaged_run), "--dry-run")):
                attack(words, label, tally)
            take_away(path)
            path.write_bytes(before)
    return tally


def submitted_run(launcher: str, number: str | None) -> Path:
    """Make the folder of a run below results that is as if submitted by a job that has not begun."""
    path = store.new_submission(Path("results"), PLAN.encode())
    known = jobs.Job(
        launcher=launcher,
        number=number,
        options={},
        plan="plan",
        submitted_at=description.utc_now(),
        installed=installed(),
    )
    jobs.save_job(path, known)
    return path


def row(run: Path, label: str, tally: Tally) -> object:
    """Return what `jobs --json` says of a run, None if it does not."""
    done = attack(("jobs", "--json"), label, tally)
    if done is None or done[0]:
        return None
    return next((each for each in json.loads(done[1]) if each["folder"] == str(run)), None)
