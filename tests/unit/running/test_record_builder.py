"""What cannot be stored costs as little as possible, and says why."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.records import HEARD, make_energy, make_record

from benchmarker import Allocation
from benchmarker.hooks import launchers
from benchmarker.power.energy import Accounts
from benchmarker.records import job
from benchmarker.records.record import Design
from benchmarker.running import submission
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.running.trial import PreemptedError
from benchmarker.worker.protocol import Done, RecordPart, StageEnded


def test_an_energy_that_cannot_be_stored_costs_the_energy_alone():
    record = make_record()
    process = Process(
        run_id=record.run_id, trial_ids=(record.trial_id,), cases=(record.case,), trial=0, designs=(Design(),)
    )
    builder = RecordBuilder(process, 0, {})
    fields = msgspec.to_builtins(record)
    names = ("device", "types", "build_s", "compile_s", "check", "preheat", "blocks", "cost", "memory", "interference")
    builder.on_event(msgspec.convert({"type": "RecordPart", **{name: fields[name] for name in names}}, RecordPart))
    energy = make_energy(math.inf)
    builder.energy_account = Accounts(energy, [], [], {})
    stored = builder.record(1.0, 0)
    assert (stored.status, stored.blocks, stored.energy) == ("ok", record.blocks, None)
    assert stored.reasons["energy"].startswith("the readings of its meters cannot be stored: ")


@pytest.mark.parametrize(
    ("block_s", "stages", "suspicions"),
    [
        (1.9, {}, []),
        (2.0025, {}, []),  # clocks that are slewed
        (2.01, {}, ["its blocks take 2.01 s, but its process had 2 s for them"]),
        (1.4, {"check": 0.3, "preheat": 0.2, "timed": 1.45}, []),
        (
            1.6,
            {"check": 0.3, "preheat": 0.2, "timed": 1.45},
            ["its blocks take 1.6 s, but its process had 1.5 s for them"],
        ),
        (0.1, {"rest": 9.0}, ["its blocks take 100 ms, but its process had 0 for them"]),
    ],
)
def test_blocks_take_no_longer_than_the_process_had_for_them(
    block_s: float, stages: dict[str, float], suspicions: list[str]
) -> None:
    record = make_record(block_s)
    process = Process(run_id="run", trial_ids=("trial",), cases=(record.case,), trial=0, designs=(Design(),))
    builder = RecordBuilder(process, 0, {})
    for event in (HEARD, RecordPart(blocks=record.blocks), *itertools.starmap(StageEnded, stages.items()), Done()):
        builder.on_event(event)
    assert builder.record(2.0, 0).suspicions == suspicions


ALLOCATION = Allocation("slurm", "7", ["node1", "node2"], 0)


@pytest.mark.parametrize(
    ("kind", "told", "ending"),
    [
        ("node", "time limit", "node failure"),
        ("node", "cancelled", "node failure"),
        ("node", "preempted", "preempted"),
        ("preempted", "preempted", "preempted"),
    ],
)
def test_a_job_that_has_lost_a_node_goes_back_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, told: str, ending: str
) -> None:
    requeued: list[Allocation] = []
    monkeypatch.setattr(launchers, "ending", lambda _: told)
    monkeypatch.setattr(launchers, "requeue", requeued.append)
    lost: Any = SimpleNamespace(error=SimpleNamespace(kind=kind, message="node node2 was lost"))
    with pytest.raises(PreemptedError), submission._noted(tmp_path, 0, ALLOCATION):
        raise PreemptedError([lost])
    assert [attempt.ending for attempt in job.attempts_of(tmp_path)] == [ending]
    assert requeued == [ALLOCATION]
