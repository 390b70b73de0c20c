"""A program as a problem: a command line that is executed instead of steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from benchmarker.api.cost import Counted

PROGRAM = "program:"
"""What the name of a problem begins with that is a command line, such as `program:./stream {n}`."""
ONCE: Mapping[str, int] = {"warmup_steps": 0, "blocks": 1}
"""How a program is measured unless something else is asked for: it is executed once in a trial."""
STEPWISE = "stepwise"
"""The option of a program that runs its steps when it is told to; it is measured as other steps are."""

START_TIME = "start_time_s"
"""The figure of a program that has how long an empty one takes, s; none if its start is not timed."""
MOSTLY_STARTED = 2.0
"""How many times as long as an empty program one takes at most if starting it is most of what is timed."""


def is_program(problem: str) -> bool:
    """Whether the problem of this name is a command line."""
    return problem.startswith(PROGRAM)


def usually(options: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how a program with these options is measured unless something else is asked for, as far as it differs."""
    return {} if options.get(STEPWISE) else ONCE


def mostly_started(own_s: float, empty_s: float) -> str:
    """Return that starting a process is most of what a program takes; empty if it is not."""
    if own_s > MOSTLY_STARTED * empty_s:
        return ""
    return f"it takes {own_s * 1e3:.2g} ms at best, and an empty program {empty_s * 1e3:.2g} ms: give it more to do"


class ToldCheck(NamedTuple):
    """How a program says that an output of it compares with what it should be."""

    output: str
    error: float
    bound: float


class Execution(ABC):
    """What a program does instead of the steps of a framework, in processes of its own.

    A block is one execution, and a trial executes the program as often as it has blocks and steps of warm-up, and for
    nothing else. One that is `stepwise` is executed once, and a block is as many of its steps as it is told to run.
    """

    stepwise: ClassVar[bool] = False

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before all that is timed; called once."""

    def counted(self) -> Counted:
        """Return the work of a step or execution, known once it is prepared; by default, nothing is known of it."""
        return Counted(flops=None, bytes=None, samples=1, source=None)

    @abstractmethod
    def block(self, steps: int) -> int:
        """Execute the program, or so many of its steps; returns the duration in ns. Raises `TrialError` if it fails."""

    def sync_s(self) -> float:
        """Return the cost to begin and end a block, s: by default 0, as a block ends with the process."""
        return 0.0

    def check(self) -> ToldCheck | str | None:
        """Return how the program itself says that its output compares, or in words; None if it says nothing.

        Called once, after the figures. Raises `TrialError` if it says that the output is wrong, without any number.
        """
        return None

    @abstractmethod
    def peak_rss_bytes(self) -> int | str:
        """Return the largest resident set of a process of the timed executions, or why it is not known."""
