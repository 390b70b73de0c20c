"""A run of 24 trials as a bidder hands it in, with the scatter of trials that were measured on a quiet machine."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from benchmarker import Case, Measuring, Record
from benchmarker.files import atomic
from benchmarker.hooks import parameters, registry
from benchmarker.procurement.submission import expected_suite
from benchmarker.records.plan import make_plan
from benchmarker.records.record import Blocks, Harness, Preheat
from support.records import QUIET, make_record, with_formulas

RUN = "20260102T030405.678901-89abcdef"
COMMIT = "0123456789ab"
STEP_S = (0.0007, 0.004, 0.012, 0.06)
"""Step times of the four cases."""
SUITE = """
problem = "gemm"
framework = "numpy"
trials = 6
[measuring]
blocks = 40
seconds = 3
preheat = {preheat}
[axes]
m = [64, 128, 256, 512]
"""


def write_offer(folder: Path, *, preheat: bool = True) -> Path:
    """Write the suite `asked.toml`, and a run of it; returns the folder of the run."""
    asked = folder / "asked.toml"
    asked.write_text(SUITE.format(preheat=str(preheat).lower()))
    suite = expected_suite(str(asked))
    problem = registry.problem("gemm")
    measuring = Measuring(blocks=40, seconds=3.0, preheat=preheat)
    cases = [
        Case(
            problem="gemm",
            framework="numpy",
            device="cpu",
            params=parameters.resolve(problem, {"m": m}, "cpu"),
            measuring=measuring,
        )
        for m in (64, 128, 256, 512)
    ]
    numbered = [msgspec.structs.replace(case, case_numbers=[number]) for number, case in enumerate(suite.cases)]
    suite = msgspec.structs.replace(suite, cases=numbered)
    plan = msgspec.structs.replace(make_plan(cases, 6, seed=1, suite=suite), run_id=RUN)
    run = folder / "offer" / RUN
    run.mkdir(parents=True)
    atomic.write(run / "plan.json", atomic.encode(plan))
    rng, now = random.Random(1), datetime(2026, 1, 2, 3, 5, tzinfo=UTC)
    for number, trial in plan.order:
        design = {"case_number": number}
        record = make_record(run=RUN, trial=trial, design=design, suite=suite.of(number))
        software = msgspec.structs.replace(record.software, commit=COMMIT)
        record = with_formulas(msgspec.structs.replace(record, case=cases[number], software=software))
        record = _measured(record, STEP_S[number], now, rng)
        write(run, record)
        now += timedelta(seconds=record.harness.wall_s + 0.2)
    return run


def write(run: Path, record: Record) -> None:
    """Store a record in the folder of its run."""
    atomic.write(run / f"{record.trial_id}.json", atomic.encode(record))


def _measured(record: Record, step_s: float, now: datetime, rng: random.Random) -> Record:
    """The record of a trial that began at a time, with steps of 1% more or less, and blocks of 0.5%."""
    step_s *= rng.gauss(1, 0.01)
    steps = max(1, math.ceil(0.01 / (step_s * rng.gauss(1, 0.02))))
    blocks = [round(1e9 * steps * step_s * (1 + abs(rng.gauss(0, 0.005)))) for _ in range(40)]
    timed_s = sum(blocks) / 1e9 + rng.uniform(0.001, 0.004)
    if record.case.measuring.preheat:
        rates = [rng.gauss(0.97, 0.02) / step_s, *(rng.gauss(1, 0.003) / step_s for _ in range(2))]
        preheat = Preheat(outcome="plateau", duration_s=3.02, steps=int(sum(rates)), window_steps_per_s=rates)
    else:
        preheat = Preheat("fixed", 3 * step_s * rng.uniform(1.0, 1.2), 3, [])
    stages = {"open": 0.4, "check": 0.1, "build": 0.15, "compile": 0.11, "preheat": preheat.duration_s + 0.01}
    stages |= {"timed": timed_s + 0.03, "verify": 0.001}
    quiet = msgspec.structs.replace(
        QUIET, duration_s=timed_s, other_busy_cores=rng.uniform(0, 0.05), pressure_percent=rng.uniform(0, 3)
    )
    return msgspec.structs.replace(
        record,
        trial_id=f"{now:%Y%m%dT%H%M%S.%f}-{rng.getrandbits(32):08x}",
        started_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        machine=msgspec.structs.replace(record.machine, load_average_1min=1.2),
        preheat=preheat,
        blocks=Blocks(steps, blocks, "blocks"),
        interference=quiet,
        harness=Harness(sum(stages.values()) + 0.1, stages),
    )
