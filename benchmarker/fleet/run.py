"""Run a fleet: its nodes, the first stage on all of them, and the second on the suspects and controls."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation
from benchmarker.files import regular
from benchmarker.fleet import folder
from benchmarker.fleet.folder import FleetSpec, LinkStage, Stage
from benchmarker.fleet.judge import repeat
from benchmarker.fleet.links import ring, run_links
from benchmarker.fleet.node_plan import description_of, link_plan_of, measures
from benchmarker.fleet.parent import Progress, run_stage
from benchmarker.fleet.results import named
from benchmarker.fleet.values import read_fleet
from benchmarker.formatting import count
from benchmarker.hooks.launchers import allocation
from benchmarker.machine.description import installed, utc_now
from benchmarker.planning import build

ALL = "all"
SBATCH = "`sbatch --nodes=4 --ntasks-per-node=1 --exclusive --wrap='python -m benchmarker nodes run'`"


def allocated() -> Allocation:
    """Return the allocation of this process; raises `UserError` if there is none, or if it has one node."""
    ours = allocation()
    if ours is None or len(ours.nodes) == 1:
        what = f"job {ours.job} has a single node, {ours.nodes[0]}" if ours else "this machine is a single node"
        raise UserError(
            f"{what}: start this in a job of several nodes, such as with {SBATCH}; or run a suite on "
            "each host, and name all runs in `nodes show`"
        )
    return ours


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
) -> tuple[Path, FleetSpec]:
    """Create the folder of a fleet that is to run a plan file; raises `UserError` if it could not run anywhere."""
    within = allocated()
    spec = FleetSpec(
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
    description = description_of(plan_file, spec)
    build.suite_of(description)
    spec = msgspec.structs.replace(spec, measures=measures(description))
    return folder.new_fleet(results, content, spec), spec


def run(path: Path, spec: FleetSpec, alpha: float, delta: float, repeats: bool, progress: Progress) -> None:
    """Run the stages of a fleet; with `repeats`, suspects are measured again, beside controls.

    An interrupt ends all nodes; what they have measured stays. Raises `UserError` if the launcher cannot start them.
    """
    suite = build.suite_of(description_of(path / folder.PLAN_FILE, spec))
    trial_s = max(float(case.settings.get("timeout_s") or Measuring().timeout_s) for case in suite.cases)
    if "nodes" in spec.measures:
        run_stage(path, spec, 0, trial_s, progress)
    if "links" in spec.measures:
        spec = _run_first_links(path, spec, trial_s, progress)
    while repeats and (again := repeat(read_fleet(path), alpha, delta)):
        for stage, what in ((again.of_nodes, "node"), (again.of_links, "link")):
            if stage:
                progress.say(
                    f"repeating {count(len(stage.cases), 'case')} with {count(stage.rounds, 'round')} on "
                    f"{count(stage.size, what)}: suspects, and others near the median"
                )
        if again.of_nodes:
            spec = _changed(path, spec, stages=[*spec.stages, again.of_nodes])
            run_stage(path, spec, len(spec.stages) - 1, trial_s, progress)
        if again.of_links:
            spec = _changed(path, spec, link_stages=[*spec.link_stages, again.of_links])
            plan = link_plan_of(path, spec, again.of_links)
            run_links(path, spec, len(spec.link_stages) - 1, plan, trial_s, progress)
    _changed(path, spec, ended_at=utc_now())


def _run_first_links(path: Path, spec: FleetSpec, trial_s: float, progress: Progress) -> FleetSpec:
    """Measure all links between neighbours that have had no trouble; returns what the fleet is asked for then."""
    (first, *_) = spec.stages
    only = "nodes" not in spec.measures
    nodes = [node for node in first.nodes if only or not folder.trouble(0, folder.state_of(path, node))]
    stage = LinkStage(ring(nodes), first.rounds)
    try:
        if not stage.links:
            raise UserError(f"of {count(len(nodes), 'node')}, there is no neighbour")
        plan = link_plan_of(path, spec, stage)
    except UserError as error:
        if only:
            raise
        progress.say(f"links are not measured: {error}")
        return _changed(path, spec, no_links=str(error))
    spec = _changed(path, spec, link_stages=[stage])
    run_links(path, spec, 0, plan, trial_s, progress)
    return spec


def _changed(path: Path, spec: FleetSpec, **fields: object) -> FleetSpec:
    """Write what a fleet is asked for with some fields changed, and return it."""
    changed: FleetSpec = msgspec.structs.replace(spec, **fields)
    folder.save_spec(path, changed)
    return changed
