"""The state of a node or link tells what ended it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarker import UserError
from benchmarker.fleet import folder
from benchmarker.fleet.member import Listener
from benchmarker.running.trial import PreemptedError

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
