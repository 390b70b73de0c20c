"""Run a fleet: its nodes, the first stage on all of them, and the second on the suspects and controls."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.fleet import folder
from benchmarker.fleet.folder import Asked, LinkStage, Stage
from benchmarker.fleet.judge import repeat
from benchmarker.fleet.links import run_links
from benchmarker.fleet.node_plan import description_of, link_plan_of, measures
from benchmarker.fleet.pairs import ring
from benchmarker.fleet.parent import run_stage
from benchmarker.fleet.values import read_fleet
from benchmarker.fleet.words import named
from benchmarker.formatting import count
from benchmarker.hooks.launchers import allocation
from benchmarker.machine.description import installed, utc_now
from benchmarker.planning import build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarker.api.launcher import Allocation
    from benchmarker.fleet.parent import Progress

ALL = "all"
SBATCH = "`sbatch --nodes=4 --ntasks-per-node=1 --exclusive --wrap='python -m benchmarker nodes run'`"


def allocated() -> Allocation:
    """Return the allocation of this process; raises `UserError` if there is none, or if it has one node."""
    found = allocation()
    if found is None or len(found.nodes) == 1:
        what = f"job {found.job} has a single node, {found.nodes[0]}" if found else "this machine is a single node"
        raise UserError(
            f"{what}: start this in a job of several nodes, such as with {SBATCH}; or run a suite on "
            "each host, and name all runs in `nodes show`"
        )
    return found


def chosen(nodes: Sequence[str], text: str) -> list[str]:
    """Return the nodes that a text asks for: `all`, a number of them, or names; raises `UserError` if some are not."""
    if text == ALL:
        return list(nodes)
    if text.isdecimal():
        if not 1 <= int(text) <= len(nodes):
            raise UserError(f"--nodes={text}: the allocation has {count(len(nodes), 'node')}")
        return list(nodes[: int(text)])
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise UserError("--nodes names no node; write all, a number, or names with commas")
    if strange := [name for name in names if name not in nodes]:
        raise UserError(f"--nodes: {named(strange)} is not in the allocation, which has {named(nodes)}")
    return names


def begin(
    results: Path,
    plan_file: Path,
    name: str,
    nodes: str,
    rounds: int,
    frameworks: Sequence[str] = (),
    settings: Mapping[str, str | int] | None = None,
) -> tuple[Path, Asked]:
    """Create the folder of a fleet that is to run a plan file; raises `UserError` if it could not run anywhere."""
    within = allocated()
    asked = Asked(
        name=name,
        frameworks=list(frameworks),
        settings=dict(settings or {}),
        seed=secrets.randbits(32),
        allocation=within,
        installed=installed(),
        started_at=utc_now(),
        stages=[Stage(chosen(within.nodes, nodes), rounds)],
    )
    try:
        content = regular.content(plan_file)
    except OSError as error:
        raise UserError(f"{plan_file}: {error.strerror}") from error
    description = description_of(plan_file, asked)
    build.suite_of(description)
    asked = msgspec.structs.replace(asked, measures=measures(description))
    return folder.new_fleet(results, content, asked), asked


def run(path: Path, asked: Asked, alpha: float, delta: float, repeats: bool, progress: Progress) -> None:
    """Run the stages of a fleet; with `repeats`, suspects are measured again, beside controls.

    An interrupt ends all nodes; what they have measured stays. Raises `UserError` if the launcher cannot start them.
    """
    suite = build.suite_of(description_of(path / folder.PLAN_FILE, asked))
    trial_s = max(float(case.settings.get("timeout_s") or Measuring().timeout_s) for case in suite.cases)
    if "nodes" in asked.measures:
        run_stage(path, asked, 0, trial_s, progress)
    if "links" in asked.measures:
        asked = _run_first_links(path, asked, trial_s, progress)
    while repeats and (again := repeat(read_fleet(path), alpha, delta)):
        for stage, what in ((again.of_nodes, "node"), (again.of_links, "link")):
            if stage:
                progress.say(
                    f"repeating {count(len(stage.cases), 'case')} with {count(stage.rounds, 'round')} on "
                    f"{count(stage.size, what)}: suspects, and others near the median"
                )
        if again.of_nodes:
            asked = _asked(path, asked, stages=[*asked.stages, again.of_nodes])
            run_stage(path, asked, len(asked.stages) - 1, trial_s, progress)
        if again.of_links:
            asked = _asked(path, asked, link_stages=[*asked.link_stages, again.of_links])
            plan = link_plan_of(path, asked, again.of_links)
            run_links(path, asked, len(asked.link_stages) - 1, plan, trial_s, progress)
    _asked(path, asked, ended_at=utc_now())


def _run_first_links(path: Path, asked: Asked, trial_s: float, progress: Progress) -> Asked:
    """Measure all links between neighbours that have had no trouble; returns what the fleet is asked for then."""
    (first, *_) = asked.stages
    only = "nodes" not in asked.measures
    nodes = [node for node in first.nodes if only or not folder.trouble(asked, 0, node, folder.state_of(path, node))]
    stage = LinkStage(ring(nodes), first.rounds)
    try:
        if not stage.links:
            raise UserError(f"of {count(len(nodes), 'node')}, there is no neighbour")
        plan = link_plan_of(path, asked, stage)
    except UserError as error:
        if only:
            raise
        progress.say(f"links are not measured: {error}")
        return _asked(path, asked, no_links=str(error))
    asked = _asked(path, asked, link_stages=[stage])
    run_links(path, asked, 0, plan, trial_s, progress)
    return asked


def _asked(path: Path, asked: Asked, **fields: object) -> Asked:
    """Write what a fleet is asked for with some fields changed, and return it."""
    changed: Asked = msgspec.structs.replace(asked, **fields)
    folder.save_asked(path, changed)
    return changed
