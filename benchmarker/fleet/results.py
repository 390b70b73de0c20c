"""The results of a fleet: the terms and values that commands print and other programs read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from benchmarker.formatting import count

Verdict = Literal["slower", "faster", "alike", "undecided", "not judged", "not suspected"]

METHOD = (
    "nodes far from the median of all are suspects; later rounds of them against control nodes near the median, or all "
    "other nodes if they are few, decide: sign test of a shift beyond δ, corrected for all suspicions (Holm)"
)


class Cell(Struct, frozen=True, kw_only=True):
    """A case on a node, or on one of its devices: its shift against the others, as a ratio of step times less 1.

    `low` and `high` are the ends of the 95% interval, null with fewer than six deciding rounds. `p_value` is that of a
    shift beyond δ; `p_adjusted` is corrected for all suspicions (Holm) and for the repeats, and decides. Cells that are
    not suspected have the shift of the first rounds against the median of all. `reason` says why a suspicion is not
    judged; `evidence` is what goes with it.
    """

    node: str
    device: int | None
    case: str
    part: str
    verdict: Verdict
    step_s: float
    shift: float
    low: float | None
    high: float | None
    p_value: float | None
    p_adjusted: float | None
    rounds: int
    reason: str = ""
    evidence: list[str] = []

    @property
    def name(self) -> str:
        """The case and its part."""
        return f"{self.case} {self.part}".strip()

    @property
    def is_named(self) -> bool:
        """Whether the node is not like the others in this case."""
        return self.verdict in ("slower", "faster")


class NodeResult(Struct, frozen=True, kw_only=True):
    """A node: its trials, why trials failed, why it has not done its part, and how it differs from most others."""

    node: str
    trials: int
    failures: dict[str, int]
    trouble: str
    unlike: list[str]

    @property
    def reasons(self) -> list[str]:
        """What is wrong with it, apart from its speed."""
        failed = [f"{number} of {self.trials} trials failed in {text}" for text, number in self.failures.items()]
        return [*filter(None, [self.trouble]), *failed]


class FleetResult(Struct, frozen=True, kw_only=True):
    """A fleet: its nodes, its cells from the slowest on, a sentence that sums it up, and what makes one doubt it.

    `suspicions` is the number of tests that were made together; `shared` is what all cases have in common, in words.
    """

    headline: str
    doubts: list[str]
    nodes: list[NodeResult]
    cells: list[Cell]
    suspicions: int
    controls: list[str]
    alpha: float
    delta: float
    shared: str
    method: str = METHOD

    @property
    def against(self) -> str:
        """What the suspects are compared with, in words; of few nodes, the other suspects are among it."""
        suspected = {cell.node for cell in self.cells if cell.verdict != "not suspected"}
        every = {cell.node for cell in self.cells} == suspected | set(self.controls)
        return "all other nodes" if every else f"{count(len(self.controls), 'control node')} near the median"

    @property
    def named(self) -> list[Cell]:
        """The cells of nodes that are not like the others."""
        return [cell for cell in self.cells if cell.is_named]

    @property
    def failed(self) -> list[NodeResult]:
        """The nodes that have not done their part, or of which trials failed."""
        return [node for node in self.nodes if node.reasons]

    @property
    def is_ok(self) -> bool:
        """Whether no node is named, and none failed."""
        return not self.named and not self.failed
