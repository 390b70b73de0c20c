"""The parent of a fleet: it gives up nodes that stay silent, and says which."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fleet.test_values import asked

from benchmarker import UserError
from benchmarker.fleet import folder, parent
from benchmarker.fleet.folder import NodeState
from benchmarker.fleet.member import Listener
from benchmarker.running.trial import PreemptedError


class Sleeper:
    """A launcher whose command does nothing for long."""

    def command(self, nodes: list[str], program: list[str]) -> list[str]:
        """Sleep, and end with the input, as nodes do."""
        return ["cat"]


class Said:
    """What the progress says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep a message."""
        self.said.append(text)

    def show(self, text: str) -> None:
        """Show nothing."""


def test_nodes_that_stay_silent_are_given_up_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent.launchers, "load_launcher", lambda _: Sleeper())
    monkeypatch.setattr(parent, "SILENT_S", 0.5)
    fleet = asked(["n1", "n2"])
    folder.save_spec(tmp_path, fleet)
    (tmp_path / "n1").mkdir()
    begun = NodeState(node="n1", host="n1", stage=0, started_at="2026-01-01T00:00:00Z", planned=4, done=1)
    folder.save_state(tmp_path, begun)
    progress = Said()
    start = time.monotonic()
    parent.run_stage(tmp_path, fleet, 0, 0.5, progress)
    assert 1 <= time.monotonic() - start < 20
    assert sorted(progress.said) == ["n1: ended early, after 1 of 4 trials", "n2: did not start"]


def test_a_stage_that_the_launcher_refuses_is_no_trouble_of_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = SimpleNamespace(command=lambda *_: ["sh", "-c", "echo 'srun: error: Step limit reached' >&2; exit 1"])
    monkeypatch.setattr(parent.launchers, "load_launcher", lambda _: refused)
    progress = Said()
    with pytest.raises(UserError, match=r"^the launcher started nothing on 2 nodes: srun: error: Step limit reached; "):
        parent.run_stage(tmp_path, asked(["n1", "n2"]), 0, 0.5, progress)
    assert progress.said == []


LOST: Any = SimpleNamespace(error=SimpleNamespace(kind="node", message="node n2 was lost"))


@pytest.mark.parametrize(
    ("error", "told", "ended"),
    [
        (UserError("nothing can be started on node n2"), "nothing can be started on node n2", True),
        (PreemptedError([LOST]), "node n2 was lost", True),
        (PreemptedError([]), "", False),
        (KeyboardInterrupt(), "", False),
    ],
)
def test_the_state_tells_what_ended_it(tmp_path: Path, error: BaseException, told: str, ended: bool) -> None:
    with pytest.raises(type(error)), Listener(tmp_path, "n1+n2", 0):
        raise error
    state = folder.state_of(tmp_path, "n1+n2")
    assert state is not None
    assert (state.error, state.ended_at is not None) == (told, ended)
