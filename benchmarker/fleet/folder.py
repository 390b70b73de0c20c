"""The folder of a fleet: what was asked for, and a folder for each node, with its normal runs and its state.

results/<id>/fleet.json             what was asked for, and the stages
results/<id>/fleet.toml             the plan file
results/<id>/fleet.log              what the launcher and the nodes printed
results/<id>/<node>/node.json       how far the node is, and how its part ended
results/<id>/<node>/<run id>/       a run of the node, one for each stage; as any other run
results/<id>/<node>+<node>/         the same of a link between two nodes
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive
from benchmarker.api.launcher import Allocation
from benchmarker.files import atomic
from benchmarker.formatting import part
from benchmarker.records import store
from benchmarker.records.factors import Value
from benchmarker.records.job import Installed

PLAN_FILE = "fleet.toml"
LOG = "fleet.log"


class Stage(Struct, frozen=True, forbid_unknown_fields=True):
    """What some nodes measure at the same time: so many rounds of these cases, by their factors; of all if empty."""

    nodes: list[str]
    rounds: Positive
    cases: list[dict[str, Value]] = []

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


class LinkStage(Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured between pairs of nodes: so many rounds of these cases, by their factors; of all if empty."""

    links: list[tuple[str, str]]
    rounds: Positive
    cases: list[dict[str, Value]] = []

    @property
    def size(self) -> int:
        """The number of links."""
        return len(self.links)


class FleetSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a fleet was asked for; `seed` is that of the order of the cases, which is the same on every node.

    `measures` is what its cases are for: nodes, links between them, or both; `no_links` is why links were not measured
    nevertheless. `ended_at` is null until the last stage has ended.
    """

    name: str
    frameworks: list[str]
    settings: dict[str, str | int]
    seed: Count
    allocation: Allocation
    installed: Installed
    started_at: str
    stages: list[Stage]
    measures: tuple[Literal["nodes", "links"], ...] = ("nodes",)
    link_stages: list[LinkStage] = []
    no_links: str = ""
    ended_at: Annotated[str | None, NULL_IS_AN_ANSWER] = None


class NodeState(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a node is in a stage, or a link, by the name of its folder.

    `ended_at` is null until it has ended, and `error` says why it could not go on.
    """

    node: str
    host: str
    stage: Count
    started_at: str
    planned: Count = 0
    done: Count = 0
    failed: Count = 0
    error: str = ""
    ended_at: Annotated[str | None, NULL_IS_AN_ANSWER] = None


def spec_of(path: Path) -> FleetSpec:
    """Return what the fleet in a folder was asked for; raises `UserError` if that cannot be read."""
    spec = atomic.decode(path / store.FLEET, lambda content: msgspec.json.decode(content, type=FleetSpec))
    if isinstance(spec, atomic.Fault):
        raise UserError(f"{spec}; name the folder of a fleet, such as results/RUN")
    return spec


def save_spec(path: Path, spec: FleetSpec) -> None:
    """Write what a fleet was asked for; raises OSError."""
    atomic.write(path / store.FLEET, atomic.encode(spec))


def of_link(ends: Sequence[str]) -> str:
    """Return the name of the folder of a link, which is no name of a node."""
    return "+".join(ends)


def state_of(path: Path, node: str) -> NodeState | None:
    """Return the state of a node, None if it has not begun; raises `UserError` if it cannot be read."""
    file = path / node / store.NODE
    if not file.exists():
        return None
    state = atomic.decode(file, lambda content: msgspec.json.decode(content, type=NodeState))
    if isinstance(state, atomic.Fault):
        raise UserError(str(state))
    return state


def save_state(path: Path, state: NodeState) -> None:
    """Write the state of a node; raises OSError."""
    atomic.write(path / state.node / store.NODE, atomic.encode(state))


def new_fleet(results: Path, plan_file: bytes, spec: FleetSpec) -> Path:
    """Create the folder of a fleet; raises `UserError` if that fails."""
    path = results / store.new_id()
    try:
        path.mkdir(parents=True)
        atomic.write(path / PLAN_FILE, plan_file)
        save_spec(path, spec)
    except OSError as error:
        raise UserError(f"cannot write to {results}: {error.strerror}; name another folder with --results") from error
    return path


def trouble(stage: int, state: NodeState | None) -> str:
    """Return why a node has not done its part of a stage; empty if it has."""
    if state is None or state.stage < stage:
        return "did not start" if stage == 0 else "did not restart to repeat its cases"
    if state.error:
        return state.error
    if state.ended_at is None:
        return f"ended early, after {part(state.done, state.planned, 'trial')}"
    return ""
