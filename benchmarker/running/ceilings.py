"""Measuring ceilings: by a search, then its winners again, or by a quick survey.

Both parts of a search are runs, and an unfinished one can be continued. A survey has one process for each framework,
which tries a few sizes one after the other. What it gives up: no size is measured in a second process, nothing is
preheated, and what one size leaves behind, such as memory of the allocator, is there for the next.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault
from benchmarker.files.locks import scratch
from benchmarker.formatting import count, duration_text
from benchmarker.hooks import launchers
from benchmarker.machine import gpus
from benchmarker.planning.ceiling_search import Survey, final, kind, measuring_s, thorough_s
from benchmarker.records import store
from benchmarker.records.plan import Plan
from benchmarker.records.record import Design, Record
from benchmarker.records.store import RunFolder
from benchmarker.running.context import Listener
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.running.run import execute
from benchmarker.worker.launch import ending_text, run_worker
from benchmarker.worker.protocol import Event, Task

SURVEY_S = 55.0
"""Seconds, for each precision, after which no further size is begun."""
REQUIRED_S = 5.0
"""Seconds that a size is expected to take which is measured however late it is."""
SURVEY_TIMEOUT_S = 300.0
"""Time limit of each process, s."""


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


def survey_s(plan: Plan) -> float:
    """Seconds that the survey of a search may take."""
    return SURVEY_S * max(1, len({case.precision for case in plan.cases if case.problem == "gemm"}))


def survey(planned: Sequence[Survey], most_s: float, listener: Listener) -> list[Record]:
    """Survey sizes for about `most_s`; returns the records of all that was begun, which are not stored."""
    end_s = time.monotonic() + most_s
    records: list[Record] = []
    with scratch() as folder:
        for number, plan in enumerate(planned):
            left_s = max(0.0, end_s - time.monotonic())
            most_s = left_s / (len(planned) - number)
            title = f"[{number + 1}/{len(planned)}] {plan.framework}"
            begin = partial(_begin, listener, title, plan, planned[number + 1 :], end_s)
            begin(0)
            new = _survey_one(plan, most_s, folder / f"log{number}", begin, listener.on_event)
            listener.end(new)
            records += new
    return records


def expected_s(planned: Sequence[Survey], most_s: float, done: int = 0) -> float:
    """Seconds that surveys should take, the first `done` sizes excepted: longer than `most_s` if they must be."""
    return max(most_s, REQUIRED_S * max(0, sum(plan.required for plan in planned) - done))


def _begin(listener: Listener, title: str, plan: Survey, later: Sequence[Survey], end_s: float, number: int) -> None:
    left_s = expected_s([plan, *later], end_s - time.monotonic(), min(number, plan.required))
    listener.begin(f"{title}, size {number + 1} of {len(plan.cases)}", plan.cases[number], left_s)


def _survey_one(
    plan: Survey, most_s: float, log: Path, begin: Callable[[int], None], listen: Callable[[Event], None]
) -> list[Record]:
    """The records of the cases that one process began; `begin` is called with the number of each but the first."""
    process = Process(
        run_id="",
        trial_ids=tuple(store.new_id() for _ in plan.cases),
        cases=tuple(plan.cases),
        trial=0,
        designs=tuple(Design(case_number=number) for number in range(len(plan.cases))),
    )
    environment = gpus.environment(plan.cases[0].gpu, os.environ)
    builders = [RecordBuilder(process, number, environment) for number in range(len(plan.cases))]
    begun = {0}

    def on_event(event: Event) -> None:
        number = event.of or 0
        if number not in begun:
            begun.add(number)
            begin(number)
        for builder in builders:
            builder.on_event(event)
        listen(event)

    task = Task(kind="survey", framework=plan.framework, cases=process.cases, required=plan.required, most_s=most_s)
    ending = run_worker(task, environment, SURVEY_TIMEOUT_S, log, on_event)
    for number in begun:
        if not builders[number].done and builders[number].failure is None:
            builders[number].fail("killed", ending_text(ending, log))
    return [builders[number].record(ending.wall_s, ending.exit) for number in sorted(begun)]
