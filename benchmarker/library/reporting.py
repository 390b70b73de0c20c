"""`report`: from stored records, traces or loads to a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarker.api.errors import UserError
from benchmarker.display.result import Part, Result, Text
from benchmarker.files import atomic
from benchmarker.formatting import clean, si
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.hooks.registry import needing
from benchmarker.library.judging import rules_of
from benchmarker.library.results import paths, refuse_empty, traces_among, warn_of
from benchmarker.page import plots
from benchmarker.page.page_model import Figure, Page, plain
from benchmarker.procurement.score import THROUGHPUT
from benchmarker.records import store
from benchmarker.records.load import Load, under

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.comparing.results import Family
    from benchmarker.files.atomic import Fault
    from benchmarker.records.record import Record

ENDINGS = (".html", ".htm")


@dataclass(frozen=True, repr=False)
class Report(Result):
    """The page of a report: its answer in words, and the whole as HTML.

    `records` are those that it shows, `family` their comparisons; there are none of traces and of loads. `faults` are
    the files that could not be read.
    """

    page: Page
    records: Sequence[Record] = ()
    family: Family | None = None
    faults: Sequence[Fault | str] = ()

    @property
    def data(self) -> Any:
        """The content of the page: verdicts, tables, the data of its figures."""
        return plain(self.page)

    def parts(self) -> Iterator[Part]:
        """Yield the first screen of the page: the answers, and what to know before believing them."""
        yield Text(self.page.title)
        for card in self.page.cards:
            yield Text(": ".join(filter(None, (card.word, card.sentence))), "  ")
        for doubt in self.page.doubts:
            yield Text(f"note: {doubt.text}", "  ")

    @cached_property
    def html(self) -> bytes:
        """The page as one file of HTML that needs no network; raises `UserError` if the extra `report` is missing."""
        with needing("report", "a page"):
            from benchmarker.page.render import render
        return render(self.page)

    def save(self, path: str | PathLike[str] = "report.html") -> None:
        """Write the page to a file, whole or not at all; raises `UserError` if its name is none of a page."""
        atomic.save(page_path(path), self.html)

    @property
    def figures(self) -> Sequence[Figure]:
        """The figures of the page."""
        return self.page.figures

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each trial; raises `UserError` of traces and loads, which have none."""
        from benchmarker.library.frames import frame_of

        if not self.records:
            raise UserError("a report of traces or loads has no trials; .to_dict() has its tables")
        return frame_of(self.records, load_metrics())


def page_path(path: str | PathLike[str]) -> Path:
    """Return the path of a page; raises `UserError` if its ending is another."""
    if (made := Path(path)).suffix.lower() not in ENDINGS:
        raise UserError(f"{made}: the name of a report must end in {' or '.join(ENDINGS)}")
    return made


def output_path(path: Path) -> Path:
    """Return the path of a page or of a figure; raises `UserError` if it ends otherwise, or if its extra is missing."""
    if path.suffix.lower() in plots.FORMATS:
        with needing("plot", "a figure"):
            import benchmarker.page.drawing
        return path
    if path.suffix.lower() not in ENDINGS:
        raise UserError(
            f"{path}: the name of a report must end in {' or '.join(ENDINGS)}, that of a figure in "
            f"{', '.join(plots.FORMATS)}"
        )
    with needing("report", "a page"):
        import benchmarker.page.render  # noqa: F401
    return path


def write_page(page: Page, path: Path) -> str:
    """Write a page, or its first figure if the file is one of a figure; return what was written."""
    if path.suffix.lower() in plots.FORMATS:
        if not page.figures:
            raise UserError("there is nothing to draw")
        return plots.save(page.figures[0], path)
    from benchmarker.page.render import render

    content = render(page)
    atomic.save(path, content)
    return f"page: {clean(str(path))} ({si(len(content), 'B')})"


def report(
    *results: str | PathLike[str],
    by: str | None = None,
    baseline: str | None = None,
    cost: str | PathLike[str] | None = None,
    weights: str | PathLike[str] | None = None,
    reference: str | PathLike[str] | None = None,
    title: str | None = None,
    metric: str | None = None,
    statistic: str | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    unread: Callable[[Iterable[Fault | str]], None] = warn_of,
) -> Report:
    """Make the page of a report; `save` writes it to a file.

    A result is a record, the folder of a run, a folder of runs, also of `serve-load`, or an archive; or all are
    profiler traces. The options are those of the command `report`. A file that cannot be read is left out with a
    warning, and the page lists it. Raises `UserError` if a result has no record, or if options exclude each other.
    """
    from benchmarker.page.assemble import page
    from benchmarker.page.gather import Procurement, gather

    named = paths(results)
    judging = {"--by": by, "--baseline": baseline, "--cost": cost, "--weights": weights, "--reference": reference}
    given = ", ".join(name for name, value in judging.items() if value)
    if traces := traces_among(named):
        from benchmarker.page.traced import page as page_of_traces
        from benchmarker.traces.profile_files import open_trace

        if given:
            raise UserError(f"traces give no verdicts: leave {given} out, or name records")
        return Report(page_of_traces([(trace, open_trace(trace)) for trace in traces], title))
    every, loads = _read(named)
    faults = [fault for _, _, of in every for fault in of]
    unread(faults)
    refuse_empty([str(result) for result, records, _ in every if not (records or loads[result])])
    read = [result for result in every if result[1]]
    all_loads = [load for of in loads.values() for load in of]
    if not read:
        from benchmarker.page.loads import page as page_of_loads

        if given:
            raise UserError(f"loads are not judged: leave {given} out")
        return Report(page_of_loads(all_loads, faults, title), faults=faults)
    if (len(read) > 1 or cost or weights) and not metric and not statistic:
        metric = THROUGHPUT
    rules = rules_of(metric, statistic, delta, alpha)
    refuse_unknown([rules.metric], [record for _, records, _ in read for record in records], load_metrics())
    study = gather(
        read,
        rules,
        by=by,
        baseline=baseline,
        procurement=Procurement(*(Path(file) if file else None for file in (cost, weights, reference))),
        loads=all_loads,
        unread=[fault for _, records, of in every if not records for fault in of],
        title=title,
    )
    content, beside = page(study)
    told = {str(fault) for fault in faults}
    unread([*(fault for fault in study.faults if str(fault) not in told), *beside])
    return Report(content, study.records, study.family, [*study.faults, *beside])


def _read(results: Sequence[Path]) -> tuple[list[tuple[Path, list[Record], list[Fault]]], dict[Path, list[Load]]]:
    """Return the records of each result with the faults, and its loads; a result with loads needs no record."""
    read, loads = [], {}
    for result in results:
        records, faults = store.read([result])
        loads[result], unread = under(result)
        if loads[result] and not records:
            faults = [fault for fault in faults if fault.path != result]
        read.append((result, records, [*faults, *unread]))
    return read, loads
