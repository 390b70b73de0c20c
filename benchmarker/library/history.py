"""`history`: from stored results to series with their changes; and from a change to an `ab` of its sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.comparing.history import DATE, HOST, NODE, Confirmation, Outcome, Series, Suspicion
from benchmarker.comparing.history import history as series_of_records
from benchmarker.comparing.other_tools import series_of, tool_of
from benchmarker.comparing.results import DELTAS, Comparison
from benchmarker.display.history import history_output
from benchmarker.display.result import Part, Result
from benchmarker.files import atomic
from benchmarker.hooks import cases as reading
from benchmarker.hooks import registry
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.hooks.registry import needing
from benchmarker.library.commits import BUILDS, Repository
from benchmarker.library.judging import judged, rules_of
from benchmarker.library.progress import Progress, listener_of
from benchmarker.library.reporting import page_path
from benchmarker.library.results import conditions, paths, warn_of
from benchmarker.records.step_times import STEP_TIME

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.api.case import Case
    from benchmarker.files.atomic import Fault
    from benchmarker.page.page_model import Figure, Page
    from benchmarker.records.record import Record
    from benchmarker.running.context import Listener

ALPHA = 0.05
"""Probability of confirming any change that is none, of all that are measured together."""
MOST = 3
"""Changes that are measured unless another number is given."""


@dataclass(frozen=True, repr=False)
class History(Result):
    """The series of all cases along `by`, each with its changes.

    `records` are those that they were made of; there are none of other tools. `faults` are the files that could not be
    read, and `in_checkouts` is the number of cases that are left out because `bisect` or `confirm` measured them.
    """

    series: Sequence[Series]
    by: str
    records: Sequence[Record] = ()
    faults: Sequence[Fault] = ()
    in_checkouts: int = 0

    @property
    def data(self) -> Sequence[Series]:
        """The series, with their points and changes."""
        return self.series

    def parts(self, *, wide: bool = False) -> Iterator[Part]:
        """Yield a table of all series, and each change in words."""
        yield from history_output(self.series, self.by, self.in_checkouts, wide=wide)

    @cached_property
    def page(self) -> Page:
        """The content of the page."""
        from benchmarker.page.history import page

        return page(self.series, DATE if self.by in (HOST, NODE) else self.by)

    @property
    def figures(self) -> Sequence[Figure]:
        """The case with the newest change, all cases at once, if there are several, and each other case."""
        return self.page.figures

    @cached_property
    def html(self) -> bytes:
        """The page as one file of HTML that needs no network; raises `UserError` if the extra `report` is missing."""
        with needing("report", "a page"):
            from benchmarker.page.render import render
        return render(self.page)

    def save(self, path: str | PathLike[str] = "history.html") -> None:
        """Write the page to a file, whole or not at all; raises `UserError` if its name is none of a page."""
        atomic.save(page_path(path), self.html)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each point: its case, its value, and `changes`, the number of changes up to it."""
        import pandas as pd

        return pd.DataFrame(
            {
                **each.case,
                "metric": each.metric,
                **msgspec.to_builtins(point),
                "changes": sum(change.at <= at for change in each.changes),
            }
            for each in self.series
            for at, point in enumerate(each.points)
        )

    def confirm(self, most: int = MOST, results: str | PathLike[str] = "results", progress: Progress = None) -> History:
        """Measure both sides of the newest changes in turns, and return the history with what was found.

        As `ab` does, with fresh processes, of the user's file in a checkout of each of the two commits below
        `results`, where the records are stored too. It is done for as many as `most` changes of which both commits can
        be checked out from the git repository of the current folder. A change is confirmed if its direction is; with a
        probability of at most 5%, any that is none is. Raises `UserError` if there is no repository, and
        `KeyboardInterrupt` with what was found before; its attribute `results` has it.
        """
        listener, records = listener_of(progress), {record.trial_id: record for record in self.records}
        chosen = [
            (series, change) for series in self.series for change in series.changes if change.confirm and change.trials
        ]
        chosen.sort(key=lambda each: each[0].points[each[1].at].started_at, reverse=True)
        found: dict[int, Confirmation] = {}
        repository = Repository(Path()) if chosen else None
        if not chosen:
            listener.say("nothing to confirm: no change has two commits that can be checked out")
        try:
            for number, (series, change) in enumerate(of_all := chosen[:most], 1):
                assert repository
                sides = [records[trial_id] for trial_id in change.trials]
                listener.say(
                    f"change {number} of {len(of_all)}: {sides[1].case.problem}, {change.before} and {change.after}"
                )
                alpha = ALPHA / len(of_all)
                found[id(change)] = _confirmed(repository, series, change, sides, Path(results), alpha, listener)
        except KeyboardInterrupt as interrupt:
            interrupt.results = self._with(found)  # type: ignore[attr-defined]
            raise
        return self._with(found)

    def _with(self, found: dict[int, Confirmation]) -> History:
        def of(series: Series) -> Series:
            changes = [
                msgspec.structs.replace(change, confirmation=found.get(id(change), change.confirmation))
                for change in series.changes
            ]
            return msgspec.structs.replace(series, changes=changes)

        return replace(self, series=[of(series) for series in self.series])


def history(
    *results: str | PathLike[str],
    by: str = DATE,
    metric: str | None = None,
    problem: str | None = None,
    where: str | Sequence[str] = (),
    unread: Callable[[Iterable[Fault]], None] = warn_of,
) -> History:
    """Find since when each case is faster or slower: change points along time, commits, versions, ...

    A result is a record, the folder of a run, a folder of runs, or an archive; or all are files of other tools, as
    docs/history.md says. `by` names and orders the points, `where` are conditions, NAME=VALUE or SQL, that select
    records. Trials of files in checkouts, which `bisect` and `confirm` measured, are left out, unless there are no
    others. A file that cannot be read is left out with a warning. Raises `UserError` if no result has a record, or if
    none knows `by` or the metric.
    """
    named = paths(results)
    if any(map(tool_of, named)):
        given = {"--problem": problem, "--where": where}
        if refused := ", ".join(name for name, value in given.items() if value):
            raise UserError(f"files of other tools have names and values alone; leave {refused} out")
        return History(series_of(named, by, metric), by)
    selected = [where] if isinstance(where, str) else where
    cases = reading.read(named, pool=True, where=conditions([*([f"problem={problem}"] if problem else []), *selected]))
    unread(cases.faults)
    if not cases:
        raise UserError("no record was read; name records, runs, or folders of runs")
    own = tuple(each for each in cases if BUILDS not in Path(each.records[0].case.problem).parts)
    in_checkouts = len(cases) - len(own) if own else 0
    cases = replace(cases, configurations=own or cases.configurations)
    derive = load_metrics(named)
    metric = metric or STEP_TIME
    refuse_unknown([metric], cases.records, derive, option="--metric")
    return History(series_of_records(cases, by, metric, derive), by, cases.records, cases.faults, in_checkouts)


def _confirmed(
    repository: Repository,
    series: Series,
    change: Suspicion,
    sides: Sequence[Record],
    results: Path,
    alpha: float,
    listener: Listener,
) -> Confirmation:
    """Measure both sides of a change in rounds, until there is a verdict.

    No difference is one of less than half the change, so that a small change is not taken for none.
    """
    delta = min(DELTAS["trial"], abs(math.expm1(math.log(change.ratio) / 2)))
    try:
        cases = [_case(repository, record, sides[1].case, results) for record in sides]
        verdicts = judged(
            cases,
            [],
            rules_of(series.metric, delta=delta, alpha=alpha),
            results,
            False,
            listener,
            both_auto=False,
            design="rounds",  # in one process, modules of both commits could have the same name
        )
    except UserError as error:
        return Confirmation(outcome="not measured", reason=str(error))
    (comparison,) = verdicts.family.comparisons
    errors = [record.error.message for record in verdicts.records if record.error]
    reason = f"trials failed: {errors[0]}" if errors and 0 in comparison.trials else ""
    outcome: Outcome = "not measured" if reason else _outcome(comparison, change)
    return Confirmation(outcome=outcome, reason=reason, comparison=comparison, records=str(verdicts.path))


def _outcome(comparison: Comparison, change: Suspicion) -> Outcome:
    if comparison.verdict == "undecided" or comparison.ratio is None:
        return "undecided"
    is_alike = (comparison.ratio > 1) == (change.ratio > 1)
    return "confirmed" if comparison.verdict != "same" and is_alike else "not confirmed"


def _case(repository: Repository, record: Record, case: Case, results: Path) -> Case:
    """Return a case with the user's file of the commit of a record; raises `UserError` if there is none."""
    assert record.source and record.source.commit
    commit = repository.commit(record.source.commit)
    if commit is None:
        raise UserError(f"{record.source.commit}: no such commit in {repository.top}")
    own = Path(record.source.path).absolute()
    if not own.is_relative_to(repository.top):
        raise UserError(f"{record.source.path} is not in the repository {repository.top}")
    file = repository.checkout(commit, None, results / BUILDS).tree / own.relative_to(repository.top)
    if not file.is_file():
        raise UserError(f"{commit.sha[:12]} has no {own.relative_to(repository.top)}")
    source = registry.problem(str(file)).source
    assert source
    return msgspec.structs.replace(case, problem=str(file), source=source.sha256)
