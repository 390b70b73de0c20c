"""What the frameworks on this machine support; each is asked in a separate process, unless its answer was kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.api.framework import FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.files.locks import scratch
from benchmarker.planning import kept_abilities
from benchmarker.planning.cases import Ability
from benchmarker.worker.launch import ending_text, run_worker
from benchmarker.worker.protocol import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarker.worker.launch import Environment, Event

TIMEOUT_S = 120.0


def abilities(problem: str, frameworks: Iterable[str], environment: Environment) -> Mapping[str, Ability | UserError]:
    """Ask all frameworks at once; if one cannot be used, its value is the error that states why."""
    names = list(frameworks)
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        answers = pool.map(lambda name: _ask(problem, name, environment), names)
        return dict(zip(names, answers, strict=True))


def usable(problem: str, frameworks: Iterable[str], environment: Environment) -> Mapping[str, Ability]:
    """Ask all frameworks. Raises the `UserError` of the first that cannot be used."""
    found = {}
    for name, ability in abilities(problem, frameworks, environment).items():
        if isinstance(ability, UserError):
            raise ability
        found[name] = ability
    return found


def _ask(problem: str, framework: str, environment: Environment) -> Ability | UserError:
    if kept := kept_abilities.read(problem, framework, environment):
        return kept
    events: list[Event] = []
    task = Task(kind="describe", framework=framework, problem=problem)
    with scratch() as folder:
        log = folder / "log"
        ending = run_worker(task, environment, TIMEOUT_S, log, events.append)
        for event in events:
            if "refused" in event:
                return UserError(event["refused"])
            if "info" in event:
                info = msgspec.convert(event["info"], FrameworkInfo)
                ability = Ability(info, msgspec.convert(event["support"], Support))
                kept_abilities.write(problem, framework, environment, ability)
                return ability
        return UserError(f"{framework} does not start: {ending_text(ending, log)}")
