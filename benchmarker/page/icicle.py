"""Build the icicle of one profile or of two: phases, scopes, ops and kernels by the time that they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarker.formatting import count, shortened, si
from benchmarker.page.page_model import Axis, Figure
from benchmarker.page.trace_marks import LEVELS, Icicle, Node
from benchmarker.tables.table import Cell, Column, Table, number
from benchmarker.traces.events import codes, grouped
from benchmarker.traces.statistics import work
from benchmarker.traces.summary import chains

if TYPE_CHECKING:
    from benchmarker.traces.ingest import Ingested

PROFILE, PHASE, SCOPE, OP, KERNEL, REST = range(len(LEVELS))
LISTED = 20
"""Rows of the data table of a profile's figure; the commands show all."""
WIDEST_LABEL = 120
"""Longer names are shortened in the middle."""
DEEPEST = 48
COLOURS = 8
"""Categories with a colour of their own, but for the last, which is that of all others."""


class Side(NamedTuple):
    """A profile of a figure, its name, and the number of its colour."""

    name: str
    series: int
    ingested: Ingested


class _Key(NamedTuple):
    """What tells a node from others within the same one; only kernels, and ops that are the work, have a category."""

    level: int
    label: str
    category: str = ""


_ALL = _Key(PROFILE, "")


@dataclass(slots=True)
class _Part:
    """A node that is being summed: time in ns and rows of each side."""

    time_ns: list[int]
    count: list[int]
    parts: dict[_Key, _Part] = field(default_factory=dict)


def ordered(known: Sequence[str], *profiles: Ingested) -> list[str]:
    """Return the known categories, and after them all others of some profiles, the longest time first."""
    sums: Counter[str] = Counter()
    for profile in profiles:
        times = work(profile.events).groupby("category", observed=True)["busy_ns"].sum()
        sums.update(dict(zip(map(str, times.index), times.tolist(), strict=True)))
    return list(dict.fromkeys([*known, *sorted(sums, key=lambda name: (-sums[name], name))]))


def colour_of(categories: Sequence[str], category: str) -> int:
    """Return the number of a category's colour; `categories` are in the order of their colours."""
    return min(categories.index(category), COLOURS - 1)


def icicle(key: str, title: str, sides: Sequence[Side], known: Sequence[str], most: int) -> Figure:
    """Return the icicle of one side or of two, with at most `most` nodes besides those of what is too small.

    `known` are the first categories, in the order of their colours.
    """
    categories = ordered(known, *(side.ingested for side in sides))
    root = _sum(sides)
    per_step = all(side.ingested.trace.steps for side in sides)
    steps = tuple(side.ingested.trace.steps if per_step and len(sides) > 1 else 1 for side in sides)
    labels: dict[str, int] = {}
    used = {each: number for number, each in enumerate(categories)}
    nodes = _nodes(root, steps, most, labels, used)
    mark = Icicle(
        title,
        tuple(side.name for side in sides),
        tuple(side.series for side in sides),
        steps,
        tuple(labels),
        tuple(categories),
        tuple(colour_of(categories, each) for each in categories),
        tuple(nodes),
    )
    return Figure(
        key,
        title,
        _caption(sides, per_step),
        Axis("busy time", "s"),
        (mark,),
        _table(root, sides),
        left_out=_left_out(root, nodes),
    )


def _sum(sides: Sequence[Side]) -> _Part:
    """Return the whole tree of all sides."""
    outside = _Part([], [])
    every = [list(_paths(side.ingested)) for side in sides]
    around = _only_around(every)
    for index, paths in enumerate(every):
        for path, time_ns, rows in paths:
            part = outside
            for key in (key for key in path if key not in around):
                part = part.parts.setdefault(key, _Part([0] * len(sides), [0] * len(sides)))
                part.time_ns[index] += time_ns
                part.count[index] += rows
    return outside.parts[_ALL]


def _only_around(every: Sequence[Sequence[tuple[list[_Key], int, int]]]) -> set[_Key]:
    """Return the scopes of only one of two sides that enclose scopes of both, such as the modules of a model.

    Without them, the scopes of both sides stand in the same place.
    """
    found = [{key for path, _, _ in paths for key in path if key.level == SCOPE} for paths in every]
    shared = set.intersection(*found)
    enclosing: set[_Key] = set()
    for path in (path for paths in every for path, _, _ in paths):
        within = [key for key in path if key.level == SCOPE]
        inner = max((place for place, key in enumerate(within) if key in shared), default=0)
        enclosing.update(within[:inner])
    return enclosing - shared


def _paths(ingested: Ingested) -> Iterator[tuple[list[_Key], int, int]]:
    """Yield the nodes from the outermost to the innermost for rows that share them, their busy time and their number.

    An op that is itself the work, as on a CPU, has no further kernel within it. Of scopes that are nested more than
    `DEEPEST` times, the outer ones are drawn.
    """
    rows = work(ingested.events)
    chain, links = chains(ingested.events, rows)
    scopes: list[tuple[_Key, ...]] = [()]
    for outer, name in links[1:]:
        around = scopes[outer]
        scopes.append((*around, _Key(SCOPE, name)) if len(around) < DEEPEST else around)
    columns = ["phase", "op", "name", "category"]
    group, first = grouped(chain, *(codes(rows[column]) for column in columns))
    time_ns = np.zeros(len(first), np.int64)
    np.add.at(time_ns, group, rows["busy_ns"].to_numpy())
    several = np.bincount(group, minlength=len(first))
    lines = zip(chain[first].tolist(), time_ns.tolist(), several.tolist(), strict=True)
    texts = rows.iloc[first][columns].itertuples(index=False, name=None)
    for (at, spent, found), (phase, op, name, category) in zip(lines, texts, strict=True):
        kernel = _Key(KERNEL, name, category)
        inner = [_Key(OP, name, category)] if op == name else [_Key(OP, op), kernel] if op else [kernel]
        yield [_ALL, _Key(PHASE, phase), *scopes[at], *inner], spent, found


def _nodes(
    root: _Part, steps: Sequence[int], most: int, labels: dict[str, int], categories: dict[str, int]
) -> list[Node]:
    """Return the largest nodes, each after the one that it is within, the longest time first; fill in the labels."""

    def size(part: _Part) -> float:
        return max(time_ns / number_ for time_ns, number_ in zip(part.time_ns, steps, strict=True))

    def label(text: str) -> int:
        return labels.setdefault(shortened(text, WIDEST_LABEL), len(labels))

    sizes = sorted((size(part) for _, _, part in _walk(root)), reverse=True)
    least = sizes[most] if len(sizes) > most else -1.0
    made: list[Node] = []
    left: list[tuple[int, _Key, _Part]] = [(0, _ALL, root)]
    while left:
        depth, key, part = left.pop()
        text = -1 if key.level == PROFILE else label(key.label)
        category = categories[key.category] if key.category else -1
        made.append(Node(depth, key.level, text, category, tuple(part.time_ns), tuple(part.count)))
        inner = sorted(part.parts.items(), key=lambda each: -size(each[1]))
        large = [(depth + 1, *each) for each in inner if size(each[1]) > least]
        small = [each for _, each in inner[len(large) :]]
        if small:
            times, rows = ([part.time_ns for part in small], [part.count for part in small])
            rest = _Part(
                [sum(side) for side in zip(*times, strict=True)], [sum(side) for side in zip(*rows, strict=True)]
            )
            large.append((depth + 1, _Key(REST, count(len(small), "smaller one")), rest))
        left += reversed(large)
    return made


def _walk(root: _Part) -> Iterator[tuple[tuple[_Key, ...], _Key, _Part]]:
    """Yield every node with the keys of those around it."""
    left: list[tuple[tuple[_Key, ...], _Key, _Part]] = [((), _ALL, root)]
    while left:
        above, key, part = left.pop()
        yield above, key, part
        left += [((*above, key), inner, of) for inner, of in part.parts.items()]


def _caption(sides: Sequence[Side], per_step: bool) -> str:
    busy = [side.ingested.trace.busy_ns for side in sides]
    caption = (
        "Widths are busy time, as in `profile kernels` and `profile scopes`: where work overlaps on several streams, "
        "each moment is divided equally among it, so that widths add up to the time in which anything ran. "
    )
    if len(sides) == 1:
        trace = sides[0].ingested.trace
        of = f" in {count(trace.steps, 'step')}" if trace.steps else ""
        return f"{caption}All of it: {si(busy[0] / 1e9, 's')}{of}."
    return (
        f"{caption}Both profiles have one scale{', per step' if per_step else ''}. A scope that only one side has "
        "around scopes of both, such as a layer, is left out. A part has the colour of the side on which it takes "
        "longer; the paler it is, the smaller is the difference compared with its own time. One profile of each side "
        "gives no verdict."
    )


def _left_out(root: _Part, nodes: Sequence[Node]) -> str:
    """Return the note on what is drawn together: the nodes that are too small."""
    merged = sum(time_ns for node in nodes if node.level == REST for time_ns in node.time_ns)
    if not merged:
        return ""
    share = merged / max(1, sum(root.time_ns))
    of_all = "less than 0.1%" if share < 0.0005 else f"{share:.1%}"
    return f"Parts too small to be drawn alone are drawn together: {of_all} of all time."


def _table(root: _Part, sides: Sequence[Side]) -> Table:
    """Return the data behind the figure: the kernels, or ops without kernels, with the longest time."""
    leaves = [((*above[1:], key), part) for above, key, part in _walk(root) if not part.parts]
    leaves.sort(key=lambda leaf: -sum(leaf[1].time_ns))
    whole = [max(1, time_ns) for time_ns in root.time_ns]
    named = [f" {side.name}" for side in sides] if len(sides) > 1 else [""]
    columns = [Column("phase"), Column("scope"), Column("op"), Column("kernel"), Column("category")]
    for name in named:
        columns += [number(f"busy{name}", "s"), number(f"share{name}", "%"), number(f"count{name}")]
    rows: list[tuple[Cell, ...]] = []
    for keys, part in leaves[:LISTED]:
        by_level = {key.level: key.label for key in keys}
        scopes = "/".join(key.label for key in keys if key.level == SCOPE)
        texts = (by_level.get(PHASE, ""), scopes, *(by_level.get(level, "") for level in (OP, KERNEL)))
        numbers = zip(part.time_ns, part.count, whole, strict=True)
        values = [value for time_ns, of, all_ns in numbers for value in (time_ns / 1e9, time_ns / all_ns, of)]
        rows.append((*(shortened(text, WIDEST_LABEL) for text in texts), keys[-1].category, *values))
    return Table(tuple(columns), tuple(rows))
