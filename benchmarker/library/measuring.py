"""`run` and `sweep`: from settings to the records of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarker.api.errors import UserError
from benchmarker.comparing import disturbances
from benchmarker.display import counters
from benchmarker.display.records import Records, as_plain, cases_output
from benchmarker.display.result import Part, Result, Text
from benchmarker.hooks import launchers
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import Derive, load_metrics
from benchmarker.library.progress import Progress, listener_of
from benchmarker.planning import build
from benchmarker.planning.factors import Description
from benchmarker.records import store
from benchmarker.records.factors import setting
from benchmarker.running.run import execute

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.api.launcher import Allocation
    from benchmarker.page.page_model import Figure
    from benchmarker.records.plan import Plan
    from benchmarker.records.record import DesignKind, Record
    from benchmarker.running.context import Listener


@dataclass(frozen=True, repr=False)
class Measured(Result):
    """What a run measured: its records by case and trial, its plan, and the folder that has both."""

    records: tuple[Record, ...]
    plan: Plan
    path: Path

    @cached_property
    def derive(self) -> Derive:
        """What derives the metrics of a record."""
        return load_metrics()

    @property
    def data(self) -> Iterator[dict[str, Any]]:
        """Each record with its metrics."""
        return (as_plain(record, self.derive(record)) for record in self.records)

    @cached_property
    def figures(self) -> Sequence[Figure]:
        """The step times of the cases."""
        from benchmarker.page.assemble import main_figures
        from benchmarker.page.study import Study

        return main_figures(Study([(str(self.path), self.records)], (), None, self.derive))

    def parts(self) -> Iterator[Part]:
        """Yield a table of the cases, and what was left out."""
        cases = Cases.of(self.records)
        yield from cases_output(cases, self.derive, remedy="`show --wide` shows")
        yield from left_out_output(self.plan)
        if independent := [one for one in cases if one.factors["independent"]]:
            from benchmarker.comparing.scaling import scalings
            from benchmarker.display.scaling import devices_output

            yield ""
            yield from devices_output(scalings(independent, self.derive).devices)

    @property
    def notes(self) -> Sequence[Text]:
        """How many trials were disturbed, and what could not be counted, or was scaled."""
        disturbed = disturbances.of_records(self.records)
        texts = [f"{disturbed}; {disturbed.advice}"] if disturbed.number else []
        return [Text(text, "  ") for text in (*texts, *counters.notes(self.records))]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each trial, as `load` does."""
        from benchmarker.library.frames import frame_of

        return frame_of(self.records, self.derive)


def left_out_output(plan: Plan) -> Iterator[Part]:
    """Yield a line for each requested item that is not run, with the reason."""
    for reason in plan.left_out:
        yield Text(f"left out: {reason}", "  ")


def run(
    *,
    problem: str,
    framework: str | Sequence[str] | None = None,
    trials: int = 1,
    results: str | PathLike[str] = "results",
    resume: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Measured:
    """Measure a problem in one or more frameworks, and return the records.

    The problem may be a user's file, whose framework need not be named, and of which `function` names what is measured.
    The `options` are those of the command `run`, as `precision="bf16"` or `seconds=5`, and those of the problem. A list
    makes a case of each value, and several lists one of each combination: `m=[256, 512]`. Each trial is a fresh
    process; records are stored in a new folder below `results`, or with `resume` in that of the newest unfinished run
    with the same cases. Nothing is printed: `progress` is a function that gets each line, or True for standard error.
    Raises `UserError` if an option is unknown or invalid, or if nothing can be run. A trial that fails is a record with
    an `error`.
    """
    given = {"problem": problem, "framework": framework, **options}
    return _measure(description_of(given, trials=trials), results, resume, progress)


def sweep(
    *,
    problem: str,
    framework: str | Sequence[str] | None = None,
    trials: int = 10,
    design: DesignKind = "rounds",
    results: str | PathLike[str] = "results",
    resume: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Measured:
    """Measure every combination of values in rounds: `run` with ten trials of each case.

    In the design `rounds`, each round runs every case in a fresh process; in a `duet`, two cases alternate in one.
    """
    given = {"problem": problem, "framework": framework, **options}
    return _measure(description_of(given, trials=trials, design=design), results, resume, progress)


def description_of(settings: Mapping[str, Any], axes: Mapping[str, Sequence[Any]] = {}, **plan: Any) -> Description:
    """Return the description of a run: each setting with several values is an axis, like those of `axes`.

    A setting that is None has its default.
    """
    several = {
        setting(name): list(value) if isinstance(value, list | tuple | range) else [value]
        for name, value in settings.items()
        if value is not None
    }
    if "weak" in several.get("scaling", ()) and several.get("devices", [1]) == [1] and "devices" not in axes:
        raise UserError("--scaling=weak needs several numbers of devices; for example --devices=1,2")
    return Description(
        base={name: values[0] for name, values in several.items() if len(values) == 1},
        axes={**{name: values for name, values in several.items() if len(values) != 1}, **axes},
        **plan,
    )


def _measure(description: Description, results: str | PathLike[str], resume: bool, progress: Progress) -> Measured:
    plan = build.from_description(description)
    return measured(plan, Path(results), resume, listener_of(progress))


def measured(plan: Plan, results: Path, resume: bool, listener: Listener, *, told_below: bool = False) -> Measured:
    """Run a plan in a new folder, or go on with the newest unfinished run of the same cases; see `finished`."""
    allocation = launchers.allocation()
    with store.unfinished_run(results, plan) if resume else store.new_run(results, plan) as folder:
        return finished(folder, listener, allocation, told_below=told_below)


def finished(
    folder: store.RunFolder, listener: Listener, allocation: Allocation | None, *, told_below: bool = False
) -> Measured:
    """Run what is left of a run, and return all of it.

    What is left out of the plan is said first, unless it is told below the results alone.
    """
    for text in folder.plan.left_out if not told_below else ():
        listener.say(f"left out: {text}")
    return Measured(Records(execute(folder, listener, allocation)), folder.plan, folder.path)
