"""A job that has lost a node: how its start ended, and that it goes back to the queue."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarker import Allocation
from benchmarker.hooks import launchers
from benchmarker.records import job
from benchmarker.running import submission
from benchmarker.running.trial import PreemptedError

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
