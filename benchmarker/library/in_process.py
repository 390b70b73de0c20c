"""Functions that are given as values, measured in this process: as a worker measures a file, by the same code."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION, IN_PROCESS, Problem
from benchmarker.formatting import error_line
from benchmarker.hooks import registry
from benchmarker.library.measuring import description_of
from benchmarker.planning import factors
from benchmarker.planning.build import case_here
from benchmarker.planning.cases import Ability, duet_trouble
from benchmarker.records import store
from benchmarker.records.plan import Plan, make_plan
from benchmarker.records.record import Design, Record
from benchmarker.running.context import Listener
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.worker.parent import Stages
from benchmarker.worker.protocol import Event, RecordPart
from benchmarker.worker.trial import measure_here

USUAL: Mapping[str, Any] = {"preheat": True, "preheat_max_s": 5.0, "seconds": 10.0, "power": "none"}
"""Settings that have other defaults than in a run: somebody waits, and one process more would not decide."""
NOT_HERE = {
    *("gpu", "devices", "nodes", "parallel", "independent", "scaling", "threads"),
    *("profile", "separable", "power", "counters"),
}
"""Settings that need a process of their own."""
_SHARED = "the process does other things as well"


class _Events:
    """Takes the events of a trial to the builders of its records, and to the listener."""

    def __init__(self, builders: Sequence[RecordBuilder], listener: Listener) -> None:
        self._builders = builders
        self._listener = listener

    def send(self, event: Event) -> None:
        """Take an event, but for the memory of this process."""
        if isinstance(event, RecordPart) and event.memory is not UNSET:
            event = msgspec.structs.replace(event, memory=UNSET)
        for builder in self._builders:
            builder.on_event(event)
        self._listener.on_event(event)


def measured_here(
    functions: Mapping[str, Callable[..., Any]],
    helpers: Mapping[str, Callable[..., Any]],
    options: Mapping[str, Any],
    output: Path | None,
    listener: Listener,
    records: list[Record],
) -> None:
    """Measure a function, or the first one in turns with each of the others, with every combination of options.

    The records of each combination are added to `records`. Raises `UserError` if an option is unknown, if a function
    fails, or if its result is wrong.
    """
    if refused := sorted(NOT_HERE & options.keys()):
        raise UserError(f"{refused[0]} cannot be set in a process that runs; put the functions into a file")
    with registry.lent(functions, helpers, options.get("framework")) as kind:
        (framework,) = kind.frameworks or ()
        hooks = registry.load([f"framework.{framework}", f"workload.{IN_PROCESS}.{framework}"]).hook
        ability = Ability(hooks.describe_framework(), hooks.describe_workload())
        first, *others = functions
        settings = {**USUAL, **options, "problem": IN_PROCESS, "framework": framework}
        trials = [
            [case_here({**table, FUNCTION: name}, kind, ability) for name in names]
            for table in factors.expand(description_of(settings, trials=1))
            for names in ([[first, other] for other in others] or [[first]])
        ]
        for number, cases in enumerate(trials, 1):
            title = f"[{number}/{len(trials)}] {' and '.join(str(case.params[FUNCTION]) for case in cases)}"
            listener.begin(title, cases[0], None)
            made = _trial(cases, kind, output, listener, title)
            listener.end(made)
            records += made


def _trial(cases: list[Case], kind: type[Problem], output: Path | None, listener: Listener, title: str) -> list[Record]:
    """Measure one or two cases in turns; if there is an `output`, it gets a run with their records, or nothing."""
    is_duet = len(cases) == 2
    if is_duet and (trouble := duet_trouble(cases)):
        raise UserError(trouble)
    plan = make_plan(cases, 1, design="duet" if is_duet else "rounds")
    if output is None:
        return _measured(msgspec.structs.replace(plan, run_id=store.new_id()), kind, listener, title)
    with store.new_run(output, plan) as folder:
        try:
            records = _measured(folder.plan, kind, listener, title)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        for record in records:
            folder.save(record)
        return records


def _measured(plan: Plan, kind: type[Problem], listener: Listener, title: str) -> list[Record]:
    """Measure the cases of a plan, and return their records; raises what fails."""
    cases, ids = tuple(plan.cases), tuple(store.new_id() for _ in plan.cases)
    partners = ids[::-1] if len(ids) == 2 else (None,)
    designs = tuple(
        Design(kind=plan.design, case_number=number, partner=partner, in_process=True)
        for number, partner in enumerate(partners)
    )
    process = Process(plan.run_id, ids, cases, 0, designs, seed=plan.seed)
    builders = [RecordBuilder(process, number, {}) for number in range(len(cases))]
    stages = Stages(_Events(builders, listener))
    stages.events.send(RecordPart(reasons={"memory": _SHARED, "energy": _SHARED}))
    start = time.monotonic()
    try:
        measure_here(cases, kind, stages, plan.seed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{title}: interrupted in the stage {stages.current}, its blocks are lost") from None
    except UserError:
        raise
    except Exception as error:
        where = cases[stages.of].params[FUNCTION]
        raise UserError(f"{where}: {error_line(error)}") from error
    for builder in builders:
        if builder.failure and builder.failure.kind != "partner":
            raise UserError(f"{builder.case.params[FUNCTION]}: {builder.failure.message}")
    names = [str(case.params[FUNCTION]) for case in cases]
    options = [f"{name}={value!r}" for name, value in cases[0].params.items() if name != FUNCTION]
    command = f"benchmarker.measure({', '.join([*names, 'inputs=...', *options])})"
    records = (builder.record(time.monotonic() - start, None) for builder in builders)
    return [msgspec.structs.replace(record, command=command) for record in records]
