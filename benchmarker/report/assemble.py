"""Assemble the page from its sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.report import answer, loads, summary
from benchmarker.report.environment import environment
from benchmarker.report.faults import faults
from benchmarker.report.measured import measured
from benchmarker.report.method import method, repeating
from benchmarker.report.page_model import Page
from benchmarker.report.power import time_series
from benchmarker.report.profiles import kernels, operations
from benchmarker.report.rooflines import roofs
from benchmarker.report.scaling import scaling
from benchmarker.report.scores import acceptance, scores
from benchmarker.report.speed import throughput, times
from benchmarker.report.sweeps import sweeps
from benchmarker.report.trade_offs import fronts
from benchmarker.report.verdicts import verdicts

if TYPE_CHECKING:
    from benchmarker.report.study import Study


def page(study: Study) -> tuple[Page, list[str]]:
    """Return the page, and the files next to the records that could not be read, which the page lists too."""
    lines, unread_lines = time_series(study)
    tables, unread_tables = operations(study)
    unread = [*unread_lines, *unread_tables]
    found = (
        measured(study),
        scores(study),
        acceptance(study),
        verdicts(study),
        summary.results(study),
        throughput(study),
        times(study),
        sweeps(study),
        scaling(study),
        fronts(study),
        loads.section(study.loads),
        roofs(study),
        kernels(study),
        tables,
        lines,
        environment(study),
        faults(study, unread),
        method(study),
        repeating(study),
    )
    made = Page(
        summary.title(study),
        summary.subtitle(study),
        (*answer.cards(study), *loads.cards(study.loads)),
        (*answer.doubts(study), *loads.doubted(study.loads)),
        tuple(each for each in found if each),
    )
    return made, unread
