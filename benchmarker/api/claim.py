"""A claim: a statement about the tool on a device, which a suite proves or refutes by running it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Verdict = Literal["PASS", "FAIL", "not here"]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a claim is proved: the platform (`cuda`, `rocm`, `cpu`, ...), and a folder for everything it writes."""

    device: str
    folder: Path

    @property
    def small(self) -> bool:
        """Whether sizes should suit a CPU: a rehearsal, which shows that the claims run."""
        return self.device == "cpu"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a claim: the verdict, the figure that was measured, and why it failed or could not be tried.

    `values` are the numbers behind the figure, by name with unit.
    """

    verdict: Verdict
    figure: str = ""
    reason: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)


class NotHereError(Exception):
    """The claim cannot be tried on this machine; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement, the longest time that trying it may take, s, and the function that tries it.

    The function runs in a process of its own. It returns an `Outcome`, or raises `NotHereError`. Any other exception
    is a failure, as is exceeding the limit.
    """

    name: str
    statement: str
    limit_s: float
    prove: Callable[[Setting], Outcome]


@dataclass(frozen=True, slots=True)
class Proof:
    """A suite of claims, the most valuable first: its purpose and how long it takes, in words.

    The versions of the distributions in `libraries` are part of the summary.
    `missing` returns, without importing a framework, why no claim can be tried on a device, or None.
    """

    summary: str
    time: str
    claims: tuple[Claim, ...]
    libraries: tuple[str, ...] = ()
    missing: Callable[[str], str | None] | None = None
