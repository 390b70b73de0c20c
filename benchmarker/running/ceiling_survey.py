"""A quick measurement of ceilings: one process for each framework, which tries a few sizes one after the other.

What it gives up: no size is measured in a second process, nothing is preheated, and what one size leaves behind, such
as memory of the allocator, is there for the next.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarker.files.locks import scratch
from benchmarker.machine import gpus
from benchmarker.records import store
from benchmarker.records.record import Design
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.worker.launch import converse, ending_text
from benchmarker.worker.protocol import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarker.planning.ceiling_search import Survey
    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record
    from benchmarker.running.context import Listener
    from benchmarker.worker.launch import Event

MOST_S = 55.0
"""Seconds, for each precision, after which no further size is begun."""
TIMEOUT_S = 300.0
"""Time limit of each process, s."""


def survey_s(plan: Plan) -> float:
    """Seconds that the survey of a search may take."""
    return MOST_S * max(1, len({case.precision for case in plan.cases if case.problem == "gemm"}))


def survey(planned: Sequence[Survey], most_s: float, listener: Listener) -> list[Record]:
    """Survey sizes for about `most_s`; returns the records of all that was begun, which are not stored."""
    end_s = time.monotonic() + most_s
    records: list[Record] = []
    with scratch() as folder:
        for number, one in enumerate(planned):
            left_s = max(0.0, end_s - time.monotonic())
            most_s = left_s / (len(planned) - number)
            begin = partial(_begin, listener, f"[{number + 1}/{len(planned)}] {one.framework}", one, end_s)
            begin(0)
            new = _measure(one, most_s, folder / f"log{number}", begin, listener.on_event)
            listener.end(new)
            records += new
    return records


def _begin(listener: Listener, title: str, one: Survey, end_s: float, number: int) -> None:
    left_s = max(0.0, end_s - time.monotonic())
    listener.begin(f"{title}, size {number + 1} of {len(one.cases)}", one.cases[number], left_s)


def _measure(
    one: Survey, most_s: float, log: Path, begin: Callable[[int], None], listen: Callable[[Event], None]
) -> list[Record]:
    """The records of the cases that one process began; `begin` is called with the number of each but the first."""
    process = Process(
        run_id="",
        trial_ids=tuple(store.new_id() for _ in one.cases),
        cases=tuple(one.cases),
        trial=0,
        designs=tuple(Design(case_number=number) for number in range(len(one.cases))),
    )
    environment = gpus.environment(one.cases[0].gpu, os.environ)
    builders = [RecordBuilder(process, number, environment) for number in range(len(one.cases))]
    begun = {0}

    def on_event(event: Event) -> None:
        number = event.get("of", 0)
        if number not in begun:
            begun.add(number)
            begin(number)
        for builder in builders:
            builder.on_event(event)
        listen(event)

    task = Task(kind="survey", framework=one.framework, cases=process.cases, required=one.required, most_s=most_s)
    ending = converse(task, environment, TIMEOUT_S, log, on_event)
    for number in begun:
        if not builders[number].done and builders[number].failure is None:
            builders[number].fail("killed", ending_text(ending, log))
    return [builders[number].record(ending.wall_s, ending.exit) for number in sorted(begun)]
