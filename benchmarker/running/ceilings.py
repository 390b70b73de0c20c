"""Measuring ceilings: a search, then its winners again. Both are runs, and an unfinished one can be continued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.formatting import count, duration_text
from benchmarker.hooks import launchers
from benchmarker.planning.ceiling_search import final, kind, measuring_s, thorough_s
from benchmarker.records import store
from benchmarker.running.run import execute

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.files.atomic import Fault
    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record
    from benchmarker.records.store import RunFolder
    from benchmarker.running.context import Listener


def measure(
    plan: Plan, trials: int, results: Path, listener: Listener, *, resume: bool
) -> tuple[list[Record], list[Record], Path]:
    """Run the search of a plan, then its winners in `trials` processes each, or continue where both were interrupted.

    Returns the records of both runs, and the folder of the second. Raises `UserError` if every trial failed, or if
    there is nothing to resume.
    """
    allocation = launchers.allocation()
    listener.say(
        f"search: {count(len(plan.cases), 'size')}, {count(plan.trials, 'trial')} each, then the fastest of each kind "
        f"again: about {duration_text(thorough_s(plan, trials))} in all"
    )
    kinds = len({kind(case) for case in plan.cases})
    before = _unfinished(results, plan, trials) if resume else None
    with store.continued(before) if before else store.new_run(results, plan) as folder:
        searched = execute(folder, listener, allocation, then_s=lambda records: measuring_s(records, kinds, trials))
    again = final(searched, trials)
    if again is None:
        raise UserError(f"every trial failed; `benchmarker show {results}` shows why")
    winners, about = len(again.cases), duration_text(measuring_s(searched, len(again.cases), trials))
    listener.say(
        f"measuring the fastest of each kind again: {count(winners, 'winner')}, {count(trials, 'trial')} each, "
        f"about {about}"
    )
    begun = _measurement(results, again, folder) if resume else None
    with store.continued(begun) if begun else store.new_run(results, again) as folder:
        return searched, execute(folder, listener, allocation), folder.path


def _unfinished(results: Path, plan: Plan, trials: int) -> RunFolder:
    """The newest run of a search. Raises `UserError` if there is none, or if its winners have been measured again."""
    faults: list[Fault] = []
    search = next(store.same_runs(results, plan, faults), None)
    if search is None:
        unread = "".join(f"; cannot read {fault}" for fault in faults)
        raise UserError(f"no unfinished search of this kind under {results}; run it without --resume{unread}")
    if search.is_complete() and (again := final(list(store.done(search.path, search.plan).values()), trials)):
        measured = _measurement(results, again, search)
        if measured and measured.is_complete():
            raise UserError(f"{measured.path} is complete: nothing is left to resume; run it without --resume")
    return search


def _measurement(results: Path, again: Plan, search: RunFolder) -> RunFolder | None:
    """The newest run that measures the winners of a search: one that began after it."""
    return next((run for run in store.same_runs(results, again, []) if run.path.name > search.path.name), None)
