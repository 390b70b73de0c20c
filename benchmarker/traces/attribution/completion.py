"""When an asynchronous op was complete.

The thread often writes the completion marker late, after everything that depends on the op has run. The op was
therefore complete no later than when the first instruction that uses its result began, or when its step ended.

An op that another one waits for, such as copy-start and copy-done, is complete when the other one ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmarker.traces.events import codes, grouped
from benchmarker.traces.formats.hlo import DONE, STARTS, Program

_NEVER = np.iinfo(np.int64).max


def completed(events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray) -> np.ndarray:
    """The column `end_ns`, limited to the first use of the result; -1 if an op was complete when it ended."""
    end_ns: np.ndarray = events["end_ns"].to_numpy().copy()
    late = np.flatnonzero(end_ns >= 0)
    if len(late):
        until = (events["ts_ns"] + events["dur_ns"]).to_numpy()[late]
        latest = np.minimum(end_ns[late], _step_ends(events, late))
        latest = np.minimum(latest, _first_uses(events, programs, np.flatnonzero(work), late, until))
        end_ns[late] = np.where(latest > until, latest, -1)
    latest_ns: np.ndarray = np.maximum(end_ns, _waited_for(events, programs, np.flatnonzero(work)))
    return latest_ns


def _waited_for(events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray) -> np.ndarray:
    """When the op ended that waited for each row that began an asynchronous operation; -1 for other rows."""
    end_ns = np.full(len(events), -1)
    begin, op, program = events["ts_ns"].to_numpy(), codes(events["op"]), events["program_id"].to_numpy()
    begins, waits = (
        np.array([opcode.endswith(ending) for opcode in events["opcode"].cat.categories], bool)[codes(events["opcode"])]
        for ending in (STARTS, DONE)
    )
    first, last = work[begins[work]], work[waits[work]]
    if not (len(first) and len(last)):
        return end_ns
    row, user = _uses(op[first], program[first], programs, list(events["op"].cat.categories))
    execution = grouped(codes(events["device"]), program, events["run"])[0]
    started = pd.DataFrame({"row": first[row], "execution": execution[first[row]], "op": user, "at": begin[first[row]]})
    ended = pd.DataFrame({"end": last, "execution": execution[last], "op": op[last], "at": begin[last]})
    pairs = pd.merge_asof(
        *(each.astype("int64").sort_values("at") for each in (started, ended)),
        on="at",
        by=["execution", "op"],
        direction="forward",
    ).dropna()
    rows, ends = (pairs[name].to_numpy().astype(np.int64) for name in ("row", "end"))
    end_ns[rows] = (begin + events["dur_ns"].to_numpy())[ends]
    return end_ns


def _step_ends(events: pd.DataFrame, late: np.ndarray) -> np.ndarray:
    """The end of the step that each row is in."""
    steps = events[events["kind"] == "step"]
    ends = dict(zip(steps["step"].tolist(), (steps["ts_ns"] + steps["dur_ns"]).tolist(), strict=True))
    return np.array([ends.get(step, _NEVER) for step in events["step"].to_numpy()[late].tolist()], np.int64)


def _first_uses(
    events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray, late: np.ndarray, until: np.ndarray
) -> np.ndarray:
    """When the first use of each late row's result began, in the same run on its device, after the row's own end."""
    found = np.full(len(late), _NEVER)
    op, program = codes(events["op"]), events["program_id"].to_numpy()
    row, user = _uses(op[late], program[late], programs, list(events["op"].cat.categories))
    if not len(row):
        return found
    device = codes(events["device"])
    execution = grouped(device, program, events["run"].to_numpy())[0] * (int(op.max()) + 1)
    rows = work[np.isin(op[work], user)]
    pairs, pair = np.unique(execution[rows] + op[rows], return_inverse=True)
    times, rank = np.unique(events["ts_ns"].to_numpy()[rows], return_inverse=True)
    begins = np.sort(pair * len(times) + rank)
    wanted = execution[late[row]] + user
    place = np.searchsorted(pairs, wanted)
    least = place * len(times) + np.searchsorted(times, until[row])
    at = np.searchsorted(begins, least)
    used = (place < len(pairs)) & (at < len(begins))
    used[used] = pairs[place[used]] == wanted[used]
    used[used] = begins[at[used]] // len(times) == place[used]
    np.minimum.at(found, row[used], times[begins[at[used]] % len(times)])
    return found


def _uses(
    op: np.ndarray, program: np.ndarray, programs: Mapping[int, Program], names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a row and an op that uses its result: the row's index among the given rows, and the op's number."""
    code_of = {name: code for code, name in enumerate(names)}
    number, first = grouped(program, op)
    users: list[list[int]] = []
    for row in first.tolist():
        of = programs.get(int(program[row]))
        users.append([code_of[name] for name in of.users(names[op[row]]) if name in code_of] if of else [])
    counts = np.array([len(each) for each in users], np.int64)[number]
    flat = [code for index in number.tolist() for code in users[index]]
    return np.repeat(np.arange(len(op)), counts), np.array(flat, np.int64)
