"""Loads of servers: latency against throughput, goodput against the rate of requests, and what makes one doubt them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from benchmarker.files.atomic import Fault
from benchmarker.formatting import count, sentence, si
from benchmarker.page.page_model import (
    Axis,
    Card,
    Dot,
    Doubt,
    Figure,
    Listing,
    Page,
    Points,
    Section,
    drawn,
    searchable,
)
from benchmarker.records.load import Load
from benchmarker.serving.doubts import doubts
from benchmarker.serving.latency import Figures, figures_of
from benchmarker.serving.session import named
from benchmarker.serving.words import (
    NAMES,
    answer,
    described,
    failed,
    found_rate,
    interval,
    latency,
    named_load,
    overload,
    tried_rate,
)
from benchmarker.stats.quantile_interval import Estimate
from benchmarker.tables.table import Cell, Column, Table, number

KEY = "loads"
DRAWN = ("ttft_s", "tpot_s", "e2e_s")
PERCENTILES = (50, 99)
MOST_LOADS = 8
"""The number of distinct colours."""
LIMIT = 7
"""The series of limits: grey."""
UNDOUBTED = (
    "No request failed or was sent late, no latency was still rising at the end, and answers are what was asked for."
)


@dataclass(frozen=True, eq=False)
class _Curve:
    """A load: its name among the others, its number, and so its colour."""

    label: str
    number: int
    load: Load

    @cached_property
    def figures(self) -> list[Figures]:
        """The figures of its rates, in ascending order."""
        return figures_of(self.load)

    @property
    def unit(self) -> str:
        """What is counted per second: tokens, unless the server does not count those of an answer."""
        answers = (each for of in self.figures for each in of.outcomes if not each.failure)
        return "chunks/s" if any(each.answer_tokens is None for each in answers) else "tokens/s"

    def words(self, what: str) -> str:
        """Return what a mark shows, with the label before it if there are several loads."""
        return " ".join(filter(None, (self.label, what)))

    def sentence(self, text: str) -> str:
        """Return a text as a sentence about the load."""
        return sentence(f"{self.label}: {text}" if self.label else text)


def _rate_per_s(figures: Figures) -> float | None:
    """Return the rate of requests that was asked for, or that of a trace file; None if all of that came at once."""
    step = figures.step
    return step.rate_per_s or (step.planned / step.seconds if step.seconds else None)


def section(loads: Sequence[Load]) -> Section | None:
    """Return the curves of loads, a table of their rates, and the doubts; None if there is no load."""
    if not loads:
        return None
    curves = _curves(loads)
    units: dict[str, list[_Curve]] = {}
    for each in curves:
        units.setdefault(each.unit, []).append(each)
    figures = [
        figure
        for number, (unit, of) in enumerate(units.items())
        for name in DRAWN
        if (figure := _latencies(f"{name.removesuffix('_s')}-load-{number}", name, of, unit))
    ]
    goodput = _goodput(curves)
    lead = [f"{described(load)}." for load in loads]
    lead += [each.sentence(answer(found, each.load)) for each in curves if (found := found_rate(each.load))]
    lead += [
        "Latency counts from the time at which a request was planned to be sent, so it contains the wait in a queue. A "
        "request that failed counts as slower than all others."
    ]
    points = tuple(each.sentence(text) for each in curves for text in _doubts(each.load))
    return Section(KEY, "Latency under load", tuple(lead), (*figures, *goodput, _table(curves)), points)


def cards(loads: Sequence[Load]) -> list[Card]:
    """Return the highest rate of each load that holds its SLO; without an SLO, the latency at its highest rate."""
    return [card for each in _curves(loads) if (card := _card(each.label or named_load(each.load), each.load))]


def _card(name: str, load: Load) -> Card | None:
    rate = tried_rate(load)
    if rate is None:
        return _latency_card(name, load)
    if load.searched and not (rate.rate and rate.is_bounded):
        of, detail = answer(rate, load), ""
    else:
        which = "highest rate found" if load.searched else "highest of the rates tried"
        which = which if rate.rate else "none of the rates tried is one"
        of = f"{which} at which {load.share:.0%} of requests meet the SLO"
        sure = [f"{rate.low:.4g} holds"] if rate.low else []
        sure += [f"{rate.high:.4g} does not"] if rate.high else []
        detail = f"95% sure that {' and '.join(sure)}." if sure else "Not 95% sure."
    return Card("none", "highest rate", f"{name}: {of}.", named(rate.rate) if rate.rate else "none", detail)


def _latency_card(name: str, load: Load) -> Card | None:
    kept = [each for each in figures_of(load) if "ttft_s" in each.percentiles and not each.is_overloaded]
    if not kept:
        return None
    highest = kept[-1]
    which = f"the highest rate{' without overload' if overload(load) else ''}"
    words = f"{name}: at {named(_rate_per_s(highest))}, {which}."
    first, end = (highest.percentiles[each][99] for each in ("ttft_s", "e2e_s"))
    detail = f"{interval(first)}; end to end p99 {latency(end.value)}."
    return Card("none", "TTFT p99", words, latency(first.value), detail)


def _doubts(load: Load) -> list[str]:
    """Return that a server was overloaded or requests failed, and what else makes one doubt a load."""
    return [*filter(None, [overload(load), failed(figures_of(load))]), *doubts(load)]


def doubted(loads: Sequence[Load]) -> list[Doubt]:
    """Return what to know before believing the figures of loads."""
    return [Doubt(each.sentence(text), KEY) for each in _curves(loads) for text in _doubts(each.load)]


def page(loads: Sequence[Load], faults: Sequence[Fault], title: str | None) -> Page:
    """Return the page of loads without records."""
    steps = [step for load in loads for step in load.steps]
    requests = sum(len(step.outcomes) for step in steps)
    failures = sum(each.failure is not None for step in steps for each in step.outcomes)
    parts = [
        count(len(loads), "load"),
        count(len(steps), "rate"),
        count(requests, "request"),
        f"{failures} failed" if failures else "none failed",
    ]
    unread = [Doubt(f"{fault} could not be read and is not included.", KEY) for fault in faults]
    found = section(loads)
    return Page(
        title or f"{' and '.join(dict.fromkeys(load.model for load in loads))}, latency under load",
        " · ".join(parts),
        tuple(cards(loads)),
        (*unread, *doubted(loads)),
        (found,) if found else (),
        UNDOUBTED,
    )


def _curves(loads: Sequence[Load]) -> list[_Curve]:
    """Return the loads with short names that differ: none of a single load, else models, servers, or runs too."""
    names: list[str] = [""] * len(loads)
    if len(loads) > 1:
        ways: tuple[Callable[[Load], str], ...] = (lambda load: load.model, named_load, described)
        several = [[way(load) for load in loads] for way in ways]
        several.append([f"{named_load(load)} {load.run_id}" for load in loads])
        names = next((each for each in several if len(set(each)) == len(loads)), several[-1])
    return [_Curve(name, number, load) for number, (name, load) in enumerate(zip(names, loads, strict=True))]


def _latencies(key: str, name: str, curves: Sequence[_Curve], unit: str) -> Figure | None:
    """Return two percentiles of a latency over the tokens that arrived per second, a point for each rate."""
    marks: list[Points] = []
    rows: list[tuple[Cell, ...]] = []
    is_open = False
    for curve in curves:
        for symbol, percent in enumerate(PERCENTILES):
            points: list[Dot] = []
            for each in curve.figures:
                if name not in each.percentiles or each.tokens_per_s is None:
                    continue
                estimate = each.percentiles[name][percent]
                value, low, high = (_finite(end) for end in (estimate.value, estimate.low, estimate.high))
                rows.append((curve.label, f"p{percent}", _rate_per_s(each), each.tokens_per_s, value, low, high))
                is_open |= value is None
                if value is not None:
                    hover = _hover(curve, percent, each, estimate, unit)
                    points.append((each.tokens_per_s, value, low, high, hover))
            if points and curve.number < MOST_LOADS:
                marks.append(Points.of(curve.words(f"p{percent}"), curve.number, points, symbol=symbol))
    if not marks:
        return None
    most = max(x for mark in marks for x in mark.x)
    limits = {getattr(curve.load.slo, name) for curve in curves if curve.load.slo} - {None}
    lines = [
        Points(f"SLO ≤ {si(limit, 's')}", LIMIT, (0.0, most), (limit, limit), look="line", symbol=2)
        for limit in sorted(limits)
    ]
    notes = [
        "A percentile that falls on a failed request has no time and is not drawn." if is_open else "",
        drawn(curves, MOST_LOADS, "loads")[1],
    ]
    columns = (
        *(Column("load"), Column("percentile"), number("requests_per_s", "1/s")),
        number(unit.replace("/", "_per_"), "1/s"),
        *(number(end, "s") for end in (name, "interval_from", "interval_to")),
    )
    return Figure(
        key,
        f"{NAMES[name][0].upper()}{NAMES[name][1:]} against {unit}",
        "Each dot is a rate of requests, and a line joins the rates of a load in ascending order. Vertical lines are "
        "95% intervals; where the requests are too few for one of its ends, that is left out.",
        Axis(unit, limit=(0.0,)),
        (*marks, *lines),
        Table(columns, tuple(rows)),
        y=Axis(NAMES[name], "s", log=True, limit=(0.0,)),
        left_out=" ".join(filter(None, notes)),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _hover(curve: _Curve, percent: int, figures: Figures, estimate: Estimate, unit: str) -> str:
    what = curve.words(f"p{percent} at {named(_rate_per_s(figures))}")
    return f"{what}: {latency(estimate.value)} ({interval(estimate)}), {si(figures.tokens_per_s, '1/s', 3)} {unit}"


def _goodput(curves: Sequence[_Curve]) -> list[Figure]:
    """Return the goodput over the requests that arrived per second, of loads with an SLO; none without any."""
    marks: list[Points] = []
    rows: list[tuple[Cell, ...]] = []
    for curve in curves:
        points: list[Dot] = []
        for each in curve.figures:
            if each.met is None or each.goodput_per_s is None:
                continue
            shares = [each.met.value, each.met.low or 0.0, each.met.high or 1.0]
            per_s = len(each.outcomes) / each.step.seconds
            good, low, high = (share * per_s for share in shares)
            rows.append((curve.label, per_s, good, low, high, shares[0]))
            met = f"goodput {named(good)}, {shares[0]:.1%} meet the SLO"
            points.append((per_s, good, low, high, f"{curve.words(f'{per_s:.4g} requests/s')}: {met}"))
        if points and curve.number < MOST_LOADS:
            marks.append(Points.of(curve.label or "goodput", curve.number, points, symbol=curve.number))
    if not marks:
        return []
    most = max(x for mark in marks for x in mark.x)
    marks.append(Points("all requests", LIMIT, (0.0, most), (0.0, most), look="line", symbol=2))
    columns = (
        Column("load"),
        *(number(name, "1/s") for name in ("requests_per_s", "goodput_per_s", "interval_from", "interval_to")),
        number("slo_met", "%"),
    )
    return [
        Figure(
            "goodput-load",
            "Goodput against requests/s",
            "Goodput is the requests per second that meet the whole SLO, with 95% intervals. On the grey line, all do.",
            Axis("requests that arrived per second", limit=(0.0,)),
            tuple(marks),
            Table(columns, tuple(rows)),
            y=Axis("goodput, requests/s", limit=(0.0,)),
        )
    ]


def _table(curves: Sequence[_Curve]) -> Listing:
    """Return a row for each rate of each load."""
    columns: list[tuple[Column, Callable[[Figures], Cell]]] = [
        (number("requests_per_s", "1/s"), _rate_per_s),
        (number("requests"), lambda each: each.step.planned),
        (number("answered"), lambda each: each.answered),
    ]
    if any(curve.load.slo for curve in curves):
        columns += [
            (number("slo_met", "%", "SLO met"), lambda each: each.met.value if each.met else None),
            (number("goodput_per_s", "1/s", "goodput, requests/s"), lambda each: each.goodput_per_s),
        ]
    columns += [
        (
            number(f"{name.removesuffix('_s')}_p{percent}_s", "s", f"{NAMES[name]} p{percent}"),
            partial(_percentile, name, percent),
        )
        for name in NAMES
        for percent in PERCENTILES
    ]
    columns += [
        (number("tokens_per_s", "1/s"), lambda each: each.tokens_per_s),
        (number("late_p99_s", "s", "sent late, p99"), lambda each: float(np.quantile(each.lateness_s, 0.99))),
    ]
    labels = [curve.label for curve in curves for _ in curve.figures]
    rates = [figures for curve in curves for figures in curve.figures]
    load = [(Column("load"), labels)] if len(curves) > 1 else []
    table = Table.of_columns([*load, *((column, [cell(each) for each in rates]) for column, cell in columns)])
    return searchable("Rates", table, "A percentile that falls on a failed request, or on none, has no value.")


def _percentile(name: str, percent: int, figures: Figures) -> float | None:
    return _finite(figures.percentiles[name][percent].value) if name in figures.percentiles else None
