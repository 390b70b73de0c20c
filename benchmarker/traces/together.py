"""One trace of all ranks of a process group: its event table holds the devices of all, on the clock that they share."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from benchmarker.api.problem import Collective
from benchmarker.records.profile import Scope, Trace
from benchmarker.traces.events import ON_DEVICE, TEXTS, words
from benchmarker.traces.ingest import Expected, Ingested, ingest
from benchmarker.traces.intervals import COMMUNICATION, union_ns
from benchmarker.traces.ranks import critical, devices, exchanges, matched, moves
from benchmarker.traces.statistics import work
from benchmarker.traces.summary import device_times

_OF_ROWS = ("parent_id", "scope_id")
"""Columns with numbers of rows, or of occurrences, which differ between ranks."""
_FAR_NS = 1_000_000_000
"""Longest time between the steps of two ranks: they are told to begin within milliseconds."""
_SUMS = (
    *("rows", "kernels", "communication_ns", "hidden_ns", "outside_ns", "uncategorised_ns", "unmatched_ops"),
    *("unmatched_backward", "unlaunched", "overlapping", "uneven"),
)


def ingest_ranks(paths: Sequence[Path], expected: Expected) -> Ingested:
    """Read the traces of all ranks of a process group on one machine, in their order; of a single process, its trace.

    If there are several devices, it is known how long each waited for the others. Raises `UserError`.
    """
    found = [ingest(path, expected) for path in paths]
    return _with_exchanges(found[0] if len(found) == 1 else _together(found), expected.collectives)


def _with_exchanges(found: Ingested, expected: Sequence[Collective] | None) -> Ingested:
    """The trace with the collectives of a step, and the waiting in each, if there are several devices."""
    parts = devices(work(found.events))
    if len(parts) < 2:
        return found
    table = pd.concat([moves(rank, rows) for rank, (_, rows) in enumerate(parts)], ignore_index=True)
    waited = matched(table, one_clock=True)[0]
    waiting_ns = found.events["waiting_ns"].to_numpy().copy()
    waiting_ns[waited["row"]] = waited["waiting_ns"]
    last = critical(waited)
    steps = range(found.trace.steps)
    trace = msgspec.structs.replace(
        found.trace,
        waiting_ns=sum(_only_waiting_ns(rows, waiting_ns[rows.index]) for _, rows in parts) if len(waited) else None,
        exchanges=exchanges(found.events, found.trace.steps, expected),
        critical_ranks=[last[step][0] for step in steps] if last.keys() >= set(steps) else [],
    )
    return replace(found, events=found.events.assign(waiting_ns=waiting_ns), trace=trace)


def _only_waiting_ns(rows: pd.DataFrame, waiting_ns: np.ndarray) -> int:
    """How long a device communicated without transferring anything; a collective waits first, then it transfers."""
    moves = (rows["category"] == COMMUNICATION).to_numpy()
    begin, end = rows["ts_ns"].to_numpy()[moves], (rows["ts_ns"] + rows["dur_ns"]).to_numpy()[moves]
    return union_ns(begin, end) - union_ns(begin + np.maximum(waiting_ns[moves], 0), end)


def _together(ranks: Sequence[Ingested]) -> Ingested:
    events = _events([rank.events for rank in ranks])
    traces = [rank.trace for rank in ranks]
    times = list(device_times(events, work(events)))
    whole = [time_ for time_ in times if not time_.track]
    missing = [*_said([trace.missing for trace in traces]), *_apart(events)]
    trace = msgspec.structs.replace(
        traces[0],
        **{name: sum(getattr(trace, name) for trace in traces) for name in _SUMS},
        steps=min(trace.steps for trace in traces),
        step_ns=[max(each) for each in zip(*(trace.step_ns for trace in traces), strict=False)],
        wall_ns=max(each.wall_ns for each in whole),
        busy_ns=sum(each.busy_ns for each in whole),
        idle_ns=sum(each.idle_ns for each in whole),
        devices=times,
        missing=missing,
        notes=_said([trace.notes for trace in traces]),
        complete=not missing,
        rank=None,
        world_size=len(ranks),
    )
    return Ingested(events, trace, _scopes(trace, [rank.scopes for rank in ranks]))


def _events(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table; the rank is in the names of the host and its threads: `cpu:1`, `rank 1 python`."""
    made, offset = [], 0
    for rank, events in enumerate(tables):
        host = ~events["kind"].isin(ON_DEVICE)
        columns = {
            "device": events["device"].astype(str).replace("cpu", f"cpu:{rank}"),
            "track": events["track"].astype(str).where(~host, f"rank {rank} " + events["track"].astype(str)),
            "name": events["name"]
            .astype(str)
            .mask((events["kind"] == "memory") & (events["name"] == "cpu"), f"cpu:{rank}"),
        }
        columns |= {name: events[name].where(events[name] < 0, events[name] + offset) for name in _OF_ROWS}
        made.append(events.astype(dict.fromkeys(TEXTS, object)).assign(**columns))
        offset += len(events)
    table = pd.concat(made, ignore_index=True)
    texts = {name: words(*pd.factorize(table[name])) for name in TEXTS}
    return table.assign(**texts).rename_axis("event_id")


def _said(ranks: Sequence[Sequence[str]]) -> list[str]:
    """Each text with the rank that it is about; what is said of every rank is told once."""
    of = {text: [rank for rank, texts in enumerate(ranks) if text in texts] for texts in ranks for text in texts}
    return [
        f"{'each rank' if len(about) == len(ranks) else ', '.join(f'rank {rank}' for rank in about)}: {text}"
        for text, about in of.items()
    ]


def _apart(events: pd.DataFrame) -> list[str]:
    """Whether the steps of the ranks are far apart, though they are told one after the other: the clocks disagree."""
    steps = events[events["kind"] == "step"]
    spans = (
        steps.assign(end_ns=steps["ts_ns"] + steps["dur_ns"])
        .groupby("device", observed=True)
        .agg({"ts_ns": "min", "end_ns": "max"})
    )
    apart_ns = spans["ts_ns"].max() - spans["end_ns"].min()
    return (
        [f"the clocks of the ranks disagree: their steps are {apart_ns / 1e9:.3g} s apart"]
        if apart_ns > _FAR_NS
        else []
    )


def _scopes(trace: Trace, ranks: Sequence[Sequence[Scope]]) -> list[Scope]:
    """The scopes of all ranks: times are sums, and how often a scope ran is what each rank says, or the most."""
    found: dict[tuple[str, str], list[Scope]] = {}
    for scopes in ranks:
        for each in scopes:
            found.setdefault((each.scope, each.phase), []).append(each)
    return sorted((_scope(of, trace.steps) for of in found.values()), key=lambda each: (-each.root_ns, -each.any_ns))


def _scope(of: Sequence[Scope], steps: int) -> Scope:
    root_ns = sum(each.root_ns for each in of)
    ran = [each.occurrences for each in of if each.occurrences is not None]
    return msgspec.structs.replace(
        of[0],
        rows=sum(each.rows for each in of),
        occurrences=max(ran, default=None),
        root_ns=root_ns,
        any_ns=sum(each.any_ns for each in of),
        pure_ns=sum(each.pure_ns for each in of),
        purity=sum(each.purity * each.root_ns for each in of) / root_ns if root_ns else 0.0,
        step_ns=[sum(each.step_ns[step] for each in of) for step in range(steps)],
    )
