"""Build the time line of one step: streams and threads with what ran on them, and the gaps of each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarker.formatting import count, shortened, si
from benchmarker.page.icicle import LISTED, WIDEST_LABEL, Side, colour_of, ordered
from benchmarker.page.page_model import Axis, Figure
from benchmarker.page.trace_marks import Box, Family, Group, Lane, Timeline
from benchmarker.tables.table import Cell, Column, Table, number
from benchmarker.traces.events import ON_DEVICE, grouped
from benchmarker.traces.intervals import nest
from benchmarker.traces.statistics import work
from benchmarker.traces.wall_time import CAUSES, idle_gaps

if TYPE_CHECKING:
    from benchmarker.traces.ingest import Ingested

MOST_LANES = 20
"""Streams and threads with a lane of their own; what ran on others is summed in one."""
MOST_LEVELS = 10
"""How deep the rows of a lane are drawn; deeper ones are summed."""
PIECES = 0.1
"""Short rows that follow each other are one box, unless between them lies more than the length of the time line divided
by so many times the number of rows drawn one by one.
"""
HOST = {"scope": "scopes", "op": "ops", "runtime": "calls"}
"""The groups of what host threads do, by the kind of the row."""
OTHER_STEPS = "work of other steps"
_TEXTS = ("family", "group", "name", "op", "scope")
_QUOTAS: dict[Family, float] = {"work": 0.55, "idle": 0.2, "host": 0.25}
"""The part of the boxes that each family may have; that of a family without rows falls to the others."""


def timeline(key: str, side: Side, known: Sequence[str], most: int) -> Figure:
    """Return the time line of the step of median duration, with the `most` longest rows and gaps one by one.

    `known` are the first categories, in the order of their colours.
    """
    ingested, title = side.ingested, side.name
    step = typical_step(ingested)
    rows, begin, end = _rows(ingested.events, step)
    rows, lanes = _in_lanes(rows)
    rows["alone"] = _longest(rows, most)
    boxes = _boxes(rows, (end - begin) / max(10, PIECES * most))
    groups = _groups(boxes, ordered(known, ingested))
    labels: dict[str, int] = {}
    drawn = tuple(_encoded(boxes, begin, groups, labels))
    return Figure(
        key,
        title,
        _caption(ingested, step, rows, end - begin),
        Axis("time in the step" if step is not None else "time in the profile", "s"),
        (Timeline(title, end - begin, lanes, groups, tuple(labels), drawn),),
        _table(rows, begin),
        left_out=_left_out(rows),
    )


def typical_step(ingested: Ingested) -> int | None:
    """Return the step of median duration, of two the shorter one; None if no step that the trace marks has any work."""
    of_work = set(work(ingested.events)["step"].unique().tolist())
    steps = [(ns, step) for step, ns in enumerate(ingested.trace.step_ns) if step in of_work]
    return sorted(steps)[(len(steps) - 1) // 2][1] if steps else None


def _rows(events: pd.DataFrame, step: int | None) -> tuple[pd.DataFrame, int, int]:
    """Return what is drawn of a step, one line for each row and gap, and when the time line begins and ends.

    `time_ns` is the busy time of work, the idle time of a gap, and the own time of any other row. What a device ran of
    other steps meanwhile is a group of its own.
    """
    own = events if step is None else events[events["step"] == step]
    of_work = own.index.isin(work(events).index)
    chosen = of_work | own["kind"].isin(tuple(HOST)).to_numpy()
    drawn, of_work = own[chosen], of_work[chosen]
    kind = drawn["kind"].astype(object)
    copies, category = kind == "copy", drawn["category"].astype(object)
    made = pd.DataFrame(
        {
            "begin": drawn["ts_ns"],
            "end": drawn["ts_ns"] + drawn["dur_ns"],
            "time_ns": np.where(of_work, drawn["busy_ns"], drawn["self_ns"]),
            "family": np.where(copies, "copy", np.where(of_work, "work", "host")),
            "group": np.where(copies, "copy", np.where(of_work, category, kind.map(HOST))),
            **{name: drawn[name].astype(object) for name in ("device", "track", "name", "op")},
            "scope": drawn["leaf"].astype(object),
            "hosted": ~kind.isin(ON_DEVICE),
        }
    )
    steps = own[own["kind"] == "step"]
    begin = min([*made["begin"], *steps["ts_ns"]])
    end = max([*made["end"], *(steps["ts_ns"] + steps["dur_ns"])])
    if step is not None:
        made = pd.concat([made, _of_others(events, step, begin, end)], ignore_index=True)
    gaps = idle_gaps(events)
    if len(gaps) and step is not None:
        gaps = gaps[gaps["step"] == step]
    if len(gaps):
        made = pd.concat([_waits(gaps, begin), made], ignore_index=True)
    return made, int(min(begin, made["begin"].min())), int(max(end, made["end"].max()))


def _of_others(events: pd.DataFrame, step: int, begin: int, end: int) -> pd.DataFrame:
    """Return a line for each row of a device that belongs to another step and ran between two times, in that time."""
    until = events["ts_ns"] + events["dur_ns"]
    meanwhile = (events["step"] != step) & (events["ts_ns"] < end) & (until > begin)
    rows = events[events["kind"].isin(ON_DEVICE) & meanwhile]
    first, last = rows["ts_ns"].clip(lower=begin), until[rows.index].clip(upper=end)
    return pd.DataFrame(
        {
            "begin": first,
            "end": last,
            "time_ns": last - first,
            "family": "host",
            "group": OTHER_STEPS,
            **{name: rows[name].astype(object) for name in ("device", "track", "name", "op")},
            "scope": rows["leaf"].astype(object),
            "hosted": False,
        }
    )


def _waits(gaps: pd.DataFrame, begin: int) -> pd.DataFrame:
    """Return a line for each gap; one that began before the step is drawn from the begin of the step."""
    return pd.DataFrame(
        {
            "begin": np.where(gaps["end_ns"] > begin, np.maximum(gaps["ts_ns"], begin), gaps["ts_ns"]),
            "end": gaps["end_ns"],
            "time_ns": gaps["idle_ns"],
            "family": "idle",
            "group": gaps["cause"],
            "device": gaps["device"],
            "track": "idle",
            **dict.fromkeys(("name", "op", "scope"), ""),
            "hosted": False,
        }
    )


def _in_lanes(rows: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Lane, ...]]:
    """Return the rows with lane and level, and the lanes: of each device, its gaps, then its streams; then the threads.

    Of too many lanes, the threads with the least time are one, the last. Rows of this one, and rows that are nested
    deeper than others may be, are `deep`.
    """
    rows = rows.assign(busy=rows["family"] != "idle")
    keys = ["hosted", "device", "busy", "track"]
    sums = rows.groupby(keys, sort=False)["time_ns"].sum().reset_index()
    kept = sums.sort_values(["hosted", "time_ns"], ascending=[True, False], kind="stable").head(MOST_LANES)
    kept = kept.sort_values([*keys[:3], "time_ns"], ascending=[True, True, True, False], kind="stable")
    place = {key: number for number, key in enumerate(kept[keys].itertuples(index=False, name=None))}
    lane = np.array([place.get(key, len(place)) for key in rows[keys].itertuples(index=False, name=None)])
    begin, end = rows["begin"].to_numpy(), rows["end"].to_numpy()
    nested, beside = nest(lane, begin, end).level, _beside(lane, begin, end)
    level = np.where(rows["hosted"], nested, beside)
    further = lane == len(place)
    deep = further | (level >= MOST_LEVELS)
    level = np.where(further, 0, np.minimum(level, MOST_LEVELS - 1))
    levels = np.zeros(len(place) + 1, np.int64)
    np.maximum.at(levels, lane, level + 1)
    names = [track if device == "cpu" else f"{device} {track}" for _, device, _, track in place]
    names.append(count(len(sums) - len(place), "further lane"))
    lanes = [Lane(shortened(name, WIDEST_LABEL), deepest) for name, deepest in zip(names, levels.tolist(), strict=True)]
    return rows.assign(lane=lane, level=level, deep=deep), tuple(lane for lane in lanes if lane.levels)


def _beside(lane: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the first level of its lane on which each row overlaps none that began before it."""
    level = np.zeros(len(lane), np.int64)
    free: dict[int, list[int]] = {}
    for row in np.lexsort((begin, lane)).tolist():
        ends = free.setdefault(int(lane[row]), [])
        level[row] = next((at for at, until in enumerate(ends) if until <= begin[row]), len(ends))
        ends[level[row] : level[row] + 1] = [int(end[row])]
    return level


def _longest(rows: pd.DataFrame, most: int) -> np.ndarray:
    """Return which rows are drawn one by one: the longest of each family."""
    family = rows["family"].where(rows["family"] != "copy", "work").to_numpy()
    span = (rows["end"] - rows["begin"]).to_numpy()
    present = {name: share for name, share in _QUOTAS.items() if (family == name).any()}
    found = np.zeros(len(rows), bool)
    for name, share in present.items():
        of = np.flatnonzero((family == name) & ~rows["deep"].to_numpy())
        chosen = int(most * share / sum(present.values()))
        found[of[np.argsort(-span[of], kind="stable")[:chosen]]] = True
    return found


def _boxes(rows: pd.DataFrame, hole_ns: float) -> pd.DataFrame:
    """Return a line for each box: rows that are drawn alone, and runs of others with what their rows share.

    Of a run, the rows of each category, or the gaps of each cause, are a line of their own.
    """
    rows = rows.sort_values(["lane", "level", "begin"], kind="stable", ignore_index=True)
    place = grouped(rows["lane"], rows["level"])[0]
    begin, end, alone = (rows[name].to_numpy() for name in ("begin", "end", "alone"))
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(place) != 0) | alone[1:] | alone[:-1] | (begin[1:] - end[:-1] > hole_ns)
    rows["run"] = np.cumsum(new)
    host = (rows["family"] == "host").to_numpy()
    box, first = grouped(rows["run"], np.where(host, -1, pd.factorize(rows["group"])[0]))
    made = rows.iloc[first][["lane", "level", "run"]].reset_index(drop=True)
    for name in _TEXTS:
        number_, texts = pd.factorize(rows[name])
        same = pd.Series(number_).groupby(box).agg(["min", "max"])
        made[name] = np.where(same["min"] == same["max"], texts.to_numpy()[same["min"]], "")
    sums = rows.groupby(box)["time_ns"].agg(["sum", "size"])
    spans = rows.groupby("run").agg(begin=("begin", "min"), end=("end", "max"))
    return made.assign(time_ns=sums["sum"], count=sums["size"]).join(spans, on="run")


def _groups(boxes: pd.DataFrame, categories: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups in the order of their colours."""
    present = set(zip(boxes["family"], boxes["group"], strict=True))
    made = [Group(name, "work", colour_of(categories, name)) for name in categories if ("work", name) in present]
    made += [Group("copy", "copy", 0)] * (("copy", "copy") in present)
    others = (*HOST.values(), OTHER_STEPS)
    made += [Group(name, "host", at) for at, name in enumerate(others) if ("host", name) in present]
    return (*made, *(Group(name, "idle", at) for at, name in enumerate(CAUSES) if ("idle", name) in present))


def _encoded(boxes: pd.DataFrame, begin: int, groups: Sequence[Group], labels: dict[str, int]) -> list[Box]:
    place = {(group.family, group.name): number for number, group in enumerate(groups)}

    def label(text: str) -> int:
        return labels.setdefault(shortened(text, WIDEST_LABEL), len(labels)) if text else -1

    return [
        Box(
            each.lane,
            each.level,
            each.begin - begin,
            each.end - each.begin,
            each.time_ns,
            each.count,
            place.get((each.family, each.group), -1),
            label(each.name),
            label(each.op if each.op != each.name else ""),
            label(each.scope),
        )
        for each in boxes.itertuples(index=False)
    ]


def _caption(ingested: Ingested, step: int | None, rows: pd.DataFrame, length_ns: int) -> str:
    trace = ingested.trace
    which = "The whole profile, as it marks no steps"
    if step is not None:
        which = f"Step {step}, of median duration among {trace.steps} (from 0)" if trace.steps > 1 else "The only step"
    text = f"{which}: {si(length_ns / 1e9, 's')}. "
    if (rows["family"] == "idle").any():
        text += (
            "Idle gaps have the colour of their cause, as in `profile idle`; a gap belongs to the step of the work "
            "that ends it. "
        )
    return text + ("The time of a box is its share of the device's busy time, or for what is not work, its own time.")


def _left_out(rows: pd.DataFrame) -> str:
    left = rows[~rows["alone"]]
    if not len(left):
        return ""
    kept = rows[rows["alone"]]
    return (
        f"The {len(kept)} longest of {len(rows)} rows and gaps are drawn one by one. Shorter ones that follow each "
        f"other are one pale box with the sum of their times: {si(left['time_ns'].sum() / 1e9, 's')} in all."
    )


def _table(rows: pd.DataFrame, begin: int) -> Table:
    """Return the data behind the figure: the longest rows and gaps."""
    longest = rows.loc[(rows["end"] - rows["begin"]).nlargest(LISTED, keep="first").index]
    columns = (
        *(Column("on"), number("begin", "s"), number("duration", "s"), number("time", "s")),
        *(Column("what"), Column("kind"), Column("op"), Column("scope")),
    )
    lines: list[tuple[Cell, ...]] = [
        (
            f"{each.device} {each.track}",
            *(value / 1e9 for value in (each.begin - begin, each.end - each.begin, each.time_ns)),
            *(shortened(text, WIDEST_LABEL) for text in (each.name or "idle", each.group, each.op, each.scope)),
        )
        for each in longest.itertuples(index=False)
    ]
    return Table(columns, tuple(lines))
