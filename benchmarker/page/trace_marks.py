"""The marks that show a profile: an icicle of its phases, scopes, ops and kernels, and the time line of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Level = Literal["profile", "phase", "scope", "op", "kernel", "rest"]
LEVELS: tuple[Level, ...] = ("profile", "phase", "scope", "op", "kernel", "rest")
Family = Literal["work", "copy", "host", "idle"]
"""What a box of a time line is: work of a category, a copy, what a host thread did, or an idle gap."""


class Node(NamedTuple):
    """A part of an icicle; its level is an index of `LEVELS`, its label and its category are indices, -1 for none.

    `time_ns` and `rows` are the busy time and the number of rows of each side, with all parts within it.
    """

    depth: int
    level: int
    label: int
    category: int
    time_ns: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Icicle:
    """Where the time of one profile or of two goes; the only mark of its figure.

    `nodes` follow their parents, so that depths alone tell which node is within which; the first one is everything. The
    node of a side takes its time, in ns, divided by the steps of the side (at least 1). `sides` are the names of the
    profiles and `series` their colours. A node of level `rest` stands for several that are too small.
    """

    name: str
    sides: tuple[str, ...]
    series: tuple[int, ...]
    steps: tuple[int, ...]
    labels: tuple[str, ...]
    categories: tuple[str, ...]
    colours: tuple[int, ...]
    nodes: tuple[Node, ...]


class Lane(NamedTuple):
    """A stream, a thread, the gaps of a device, or what has no lane of its own; `levels` is how deep its rows nest."""

    name: str
    levels: int


class Group(NamedTuple):
    """A category, a kind of row of a host, or a cause of idle time; `colour` is its number among its family."""

    name: str
    family: Family
    colour: int


class Box(NamedTuple):
    """A row of the event table, an idle gap, or `rows` shorter ones that follow each other in the lane.

    `begin_ns` is from the begin of the time line, `span_ns` how long the box is. `time_ns` is the sum that its rows
    count for: of work, of busy time; of gaps, of idle time; of other rows, of their own time. `group` is -1 if they
    differ; `label`, `op` and `scope` are indices of the labels, -1 for none.
    """

    lane: int
    level: int
    begin_ns: int
    span_ns: int
    time_ns: int
    rows: int
    group: int
    label: int
    op: int
    scope: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each stream and thread did what in one step, and why devices were idle; the only mark of its figure.

    `boxes` are sorted by lane, level and begin. Of one lane, gaps that are counted together begin at the same time.
    """

    name: str
    length_ns: int
    lanes: tuple[Lane, ...]
    groups: tuple[Group, ...]
    labels: tuple[str, ...]
    boxes: tuple[Box, ...]
