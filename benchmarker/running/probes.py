"""Short trials of cases that no earlier record tells about, to estimate how long a plan will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.files.locks import scratch
from benchmarker.planning import estimate
from benchmarker.records.plan import make_plan
from benchmarker.records.store import RunFolder
from benchmarker.running.context import Context
from benchmarker.running.run import make_process
from benchmarker.running.trial import run_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record
    from benchmarker.running.context import Listener


def probe(plan: Plan, indices: Sequence[int], listener: Listener) -> dict[int, Record]:
    """A short trial of each case with one of these indices, by index; nothing is stored.

    Cases of several nodes have none: nothing is written where other nodes would see it.
    """
    indices = [index for index in indices if plan.cases[index].nodes == 1]
    if not indices:
        return {}
    probes = make_plan([estimate.probe(plan.cases[index]) for index in indices], 1)
    found = {}
    with scratch() as path:
        context = Context(RunFolder(path, probes), listener)
        for number, (index, case) in enumerate(zip(indices, probes.cases, strict=True)):
            listener.begin(f"[{number + 1}/{len(indices)}] probe of {case.framework} {case.problem}", case, None)
            outcome = run_process(context, make_process(probes, [(number, 0)], slot=number))
            listener.end(outcome.records)
            (found[index],) = outcome.records
    return found
