"""The results of a fleet: the terms and values that commands print and other programs read."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from benchmarker.formatting import count, part, some

Verdict = Literal["slower", "faster", "alike", "undecided", "not judged", "not suspected"]

METHOD = (
    "in the first rounds, nodes far from the median of all nodes, and links slower than the median of all links, are "
    "suspected; later rounds measure them at the same time as controls, which are those near the median, or all others "
    "if they are few; a sign test of these rounds decides whether the shift exceeds δ, corrected for all suspicions "
    "(Holm)"
)
MOST = 4
"""Most nodes, differences or cases that a sentence lists."""


class Cell(Struct, frozen=True, kw_only=True):
    """A case on a node, one of its devices, or a link: its shift against the others, as a ratio of step times less 1.

    A link has the nodes at its `ends`, and `node` is its name.

    `low` and `high` are the ends of the 95% interval, null with fewer than six deciding rounds. `p_value` is that of a
    shift beyond δ; `p_adjusted` is corrected for all suspicions (Holm) and for the repeats, and decides. Cells that are
    not suspected have the shift of the first rounds against the median of all. `reason` says why a suspicion is not
    judged; `evidence` is what goes with it.
    """

    node: str
    ends: list[str] = []
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
    def where(self) -> str:
        """The node, the device, or the link."""
        return self.node if self.device is None else f"{self.node}, device {self.device}"

    @property
    def is_suspected(self) -> bool:
        """Whether the first rounds made it a suspect."""
        return self.verdict != "not suspected"

    @property
    def is_named(self) -> bool:
        """Whether the node or link is an outlier in this case."""
        return self.verdict in ("slower", "faster")


class NodeResult(Struct, frozen=True, kw_only=True):
    """A node: its trials, why trials failed, why it has not done its part, and how it differs from most others.

    `slow_links` are the cases in which all of its links are named. It may be a link itself, with nodes at its `ends`.
    """

    node: str
    ends: list[str] = []
    trials: int
    failures: dict[str, int]
    trouble: str
    unlike: list[str]
    slow_links: list[str] = []

    @property
    def reasons(self) -> list[str]:
        """What is wrong with it, apart from its speed."""
        failed = [f"{part(number, self.trials, 'trial')} failed in {text}" for text, number in self.failures.items()]
        return [*filter(None, [self.trouble]), *failed]


class FleetResult(Struct, frozen=True, kw_only=True):
    """A fleet: its nodes and links, its cells from the slowest on, a sentence that sums it up, and doubts about it.

    `suspicions` is the number of tests that were made together; `shared` is what all cases have in common, in words.
    """

    headline: str
    doubts: list[str]
    nodes: list[NodeResult]
    links: list[NodeResult] = []
    cells: list[Cell]
    suspicions: int
    controls: list[str]
    link_controls: list[str] = []
    alpha: float
    delta: float
    shared: str
    method: str = METHOD

    @property
    def against(self) -> str:
        """What the suspects are compared with, in words; of few, the other suspects are among it."""
        of_nodes = [cell for cell in self.cells if not cell.ends]
        of_links = [cell for cell in self.cells if cell.ends]
        kinds = (("node", of_nodes, self.controls), ("link", of_links, self.link_controls))
        return " and ".join(_against(*kind) for kind in kinds if any(cell.is_suspected for cell in kind[1]))

    @property
    def named(self) -> list[Cell]:
        """The cells of nodes and links that are outliers."""
        return [cell for cell in self.cells if cell.is_named]

    @property
    def failed(self) -> list[NodeResult]:
        """The nodes and links that have not done their part, or of which trials failed."""
        return [node for node in (*self.nodes, *self.links) if node.reasons]

    @property
    def is_ok(self) -> bool:
        """Whether no node or link is named, and none failed."""
        return not self.named and not self.failed


def _against(what: str, cells: Sequence[Cell], controls: Sequence[str]) -> str:
    suspected = {cell.node for cell in cells if cell.is_suspected}
    every = {cell.node for cell in cells} == suspected | set(controls)
    return f"all other {what}s" if every else f"{count(len(controls), f'control {what}')} near the median"


def grouped(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each trouble, with the nodes that have it: `node1, node2: did not start`."""
    by_reason: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        by_reason.setdefault(reason, []).append(node)
    return [f"{named(nodes)}: {reason}" for reason, nodes in by_reason.items()]


def named(nodes: Sequence[str]) -> str:
    """Return the names of nodes, of many only the first ones and their number."""
    return some(nodes, MOST)


def listed(texts: Sequence[str]) -> str:
    """Return differences in one text, of many only the first ones and their number."""
    return some(texts, MOST, "; ")


def name_of_link(ends: Sequence[str]) -> str:
    """Return the name of a link between two nodes."""
    return "–".join(ends)
