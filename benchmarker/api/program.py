"""A program as a problem: a command line that is executed instead of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from benchmarker.api.metric import Figure

PROGRAM = "program:"
"""What the name of a problem begins with that is a command line, such as `program:./stream {n}`."""
ONCE: Mapping[str, int] = {"warmup_steps": 0, "blocks": 1}
"""How a program is measured unless something else is asked for: it is executed once in a trial."""


def is_program(problem: str) -> bool:
    """Whether the problem of this name is a command line."""
    return problem.startswith(PROGRAM)


class Execution(ABC):
    """What a program does instead of steps: a block is one execution, in a process of its own.

    A trial executes it as often as it has blocks and steps of warm-up, and for nothing else.
    """

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before all that is timed; called once."""

    @abstractmethod
    def block(self, steps: int) -> int:
        """Execute the program once; returns its duration in ns. Raises `TrialError` if it fails."""

    def sync_s(self) -> float:
        """Return 0: a block ends with the process."""
        return 0.0

    @abstractmethod
    def figures(self) -> Sequence[Figure]:
        """Return what is known of the timed executions, the last ones; raises `TrialError` if one was not as it should.

        Called once, after all of them.
        """

    @abstractmethod
    def peak_rss_bytes(self) -> int | str:
        """Return the largest resident set of a process of the timed executions, or why it is not known."""
