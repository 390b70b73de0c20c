"""The parent's side of `check`: each framework's modes against the reference, and their losses against each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarker.api.case import Case, Mode
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import FUNCTION
from benchmarker.files.locks import scratch
from benchmarker.records.record import Check
from benchmarker.worker.launch import Environment, ending_text, run_worker
from benchmarker.worker.protocol import Checked, Event, Losses, Refused, Task

TIMEOUT_S = 600.0
FALL = 0.75
"""A loss falls if the mean of its last fifth is below this fraction of its first value."""
AGREEMENT = 1e-3
"""Largest relative difference between two frameworks' losses at any step, in fp32 and fp64."""
ROUNDOFFS = 32
"""The same in shorter types, in unit roundoffs: the differences of many updates add up."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of one mode found; `ok` is None if nothing could be checked. A user's file has a `function`."""

    framework: str
    mode: str
    check: Check | None
    ok: bool | None
    note: str = ""
    function: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A framework's training loss: first and last, whether it falls, and its distance from the first framework's."""

    framework: str
    first: float
    last: float
    falls: bool
    apart: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether the loss falls and agrees with the first framework's."""
        return self.falls and self.apart <= self.bound


def check_modes(
    case: Case, modes: Sequence[Mode], steps: int, environment: Environment, losses: dict[str, list[float]]
) -> list[Finding]:
    """Check one framework's modes in one worker; a mode that did not complete is a finding as well.

    If training is among the modes, the losses of `steps` training steps are added to `losses`, by framework.
    """
    events: list[Event] = []
    task = Task(kind="check", framework=case.framework, cases=(case,), modes=tuple(modes), steps=steps)
    with scratch() as folder:
        log = folder / "log"
        ending = run_worker(task, environment, TIMEOUT_S, log, events.append)
        trouble = next((event.message for event in events if isinstance(event, Refused)), ending_text(ending, log))
    checks: dict[str, Check | str] = {}
    for event in events:
        if isinstance(event, Checked) and event.mode:
            checks[event.mode] = event.check
        if isinstance(event, Losses):
            # JSON has no NaN and no infinity: both arrive as null. As infinity, the loss neither falls nor agrees.
            losses[case.framework] = [math.inf if loss is None else loss for loss in event.losses]
    return [_finding(case, mode, checks.get(mode), trouble) for mode in modes]


def _finding(case: Case, mode: Mode, check: Check | str | None, trouble: str) -> Finding:
    function = str(case.params.get(FUNCTION, "")) if case.source else ""
    if isinstance(check, Check):
        return Finding(case.framework, mode, check, check.ok, function=function)
    return Finding(case.framework, mode, None, None if check else False, check or trouble, function)


def compare_losses(losses: Mapping[str, Sequence[float]], precision: str) -> list[Curve]:
    """Whether each framework's loss falls, and whether it agrees with that of the first."""
    bound = max(AGREEMENT, ROUNDOFFS * PRECISIONS[precision].roundoff)
    curves = []
    for name, values in losses.items():
        others = next(iter(losses.values()))
        tail = values[-max(1, len(values) // 5) :]
        curves.append(
            Curve(
                framework=name,
                first=values[0],
                last=values[-1],
                falls=sum(tail) / len(tail) < FALL * values[0],
                apart=max(_apart(a, b) for a, b in zip(values, others, strict=True)),
                bound=bound,
            )
        )
    return curves


def _apart(loss: float, other: float) -> float:
    """Relative difference of two losses; infinite if either is."""
    return abs(loss - other) / abs(other) if math.isfinite(loss) and math.isfinite(other) else math.inf
