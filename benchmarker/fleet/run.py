"""Run a fleet: its nodes, the first stage on all of them, and the second on the suspects and controls."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError
from benchmarker.fleet import folder
from benchmarker.fleet.folder import Asked, Stage
from benchmarker.fleet.judge import repeat
from benchmarker.fleet.node_plan import description_of
from benchmarker.fleet.parent import run_stage
from benchmarker.fleet.values import read_fleet
from benchmarker.fleet.words import named
from benchmarker.formatting import count
from benchmarker.hooks.launchers import allocation
from benchmarker.machine.description import utc_now
from benchmarker.machine.software import installed
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
        what = "this machine" if found is None else f"{found.nodes[0]}, the one node of job {found.job},"
        raise UserError(
            f"{what} alone is no fleet: start this in a job of several nodes, such as with {SBATCH}; or run a suite on "
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
        content = plan_file.read_bytes()
    except OSError as error:
        raise UserError(f"{plan_file}: {error.strerror}") from error
    build.suite_of(description_of(plan_file, asked))
    return folder.new_fleet(results, content, asked), asked


def run(path: Path, asked: Asked, alpha: float, delta: float, repeats: bool, progress: Progress) -> None:
    """Run the stages of a fleet; with `repeats`, suspects are measured again, beside controls.

    An interrupt ends all nodes; what they have measured stays. Raises `UserError` if the launcher cannot start them.
    """
    suite = build.suite_of(description_of(path / folder.PLAN_FILE, asked))
    trial_s = max(float(case.settings.get("timeout_s") or Measuring().timeout_s) for case in suite.cases)
    run_stage(path, asked, 0, trial_s, progress)
    while repeats and (stage := repeat(read_fleet(path), alpha, delta)):
        progress.say(
            f"repeating {count(len(stage.cases), 'case')} with {count(stage.rounds, 'round')} on "
            f"{count(len(stage.nodes), 'node')}: suspects, and others near the median"
        )
        asked = msgspec.structs.replace(asked, stages=[*asked.stages, stage])
        folder.save_asked(path, asked)
        run_stage(path, asked, len(asked.stages) - 1, trial_s, progress)
    folder.save_asked(path, msgspec.structs.replace(asked, ended_at=utc_now()))
