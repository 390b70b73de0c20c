"""A load as tables: percentiles of one rate, or a line for each of several, and what would make one doubt them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarker.cli.display.output import Output
from benchmarker.display.result import Part, Text
from benchmarker.formatting import part, rounded, si
from benchmarker.records.load import Load
from benchmarker.serving.doubts import doubts
from benchmarker.serving.latency import LATENCIES, Figures, figures_of
from benchmarker.serving.session import named
from benchmarker.serving.words import NAMES, answer, described, failed, found_rate, interval, latency, overload
from benchmarker.tables.table import Cell, Column, Shown, Table, number

MOST_MESSAGES = 3


def output_of(load: Load, path: Path | None) -> Output:
    """Return a load, where it is stored if it could be, and the exit status of `serve-load`."""
    if highest := found_rate(load):
        status = 1 if highest.rate is None else 0
    else:
        status = 1 if any(not figures.answered or figures.is_overloaded for figures in figures_of(load)) else 0
    return Output(_output(load), _plain(load, path), status, stored=f"load: {path}" if path else "")


def _output(load: Load) -> Iterator[Part]:
    figures = figures_of(load)
    found = found_rate(load)
    told = answer(found, load) if found else overload(load)
    if told:
        yield Text(told)
    yield Text(described(load))
    if len(figures) == 1:
        yield from _one_output(figures[0])
    elif figures:
        yield from _rates_output(figures)
    yield from _failures_output(figures)
    for doubt in doubts(load):
        yield Text(f"doubt: {doubt}", indent="  ")


def _one_output(figures: Figures) -> Iterator[Part]:
    """Yield the percentiles of a single step."""
    step = figures.step
    answered = part(figures.answered, step.planned, "request")
    sentence = f"{named(step.rate_per_s)} for {step.seconds:.4g} s: {answered} answered"
    yield Text(f"{sentence}, {si(figures.tokens_per_s, '1/s')} tokens/s")
    if figures.met:
        met = f"{figures.met.value:.1%} ({figures.met.low:.1%} to {figures.met.high:.1%}) of requests meet the SLO"
        yield Text(f"goodput {si(figures.goodput_per_s, '1/s')} requests/s: {met}")
    lines = [
        (NAMES[name], f"p{percent}", each.value, interval(each), each.low, each.high)
        for name, percentiles in figures.percentiles.items()
        for percent, each in percentiles.items()
    ]
    lines += [("lateness", name, value, "", None, None) for name, value in _lateness(figures)]
    names = [None, *(name for name, *_ in lines)]
    rows = [
        (Shown(name, "" if name == above else name), percentile, value, Shown(None, text), low, high)
        for above, (name, percentile, value, text, low, high) in zip(names, lines, strict=False)
    ]
    ends = [number(f"time_s {end}", only="data") for end in ("low", "high")]
    time = number("time_s", "s", form=latency)
    yield Table.of(["latency", "percentile", time, Column("95% interval", only="print"), *ends], rows)


def _rates_output(figures: Sequence[Figures]) -> Iterator[Part]:
    """Yield a line for each rate."""
    rate = partial(si, unit="1/s", digits=3)
    columns: list[tuple[Column, Callable[[Figures], Cell]]] = [
        (number("requests_per_s", form=partial(rounded, digits=4)), lambda each: each.step.rate_per_s or 0.0),
        (Column("answered"), lambda each: Shown(each.answered, f"{each.answered}/{each.step.planned}")),
        (number("planned", only="data"), lambda each: each.step.planned),
    ]
    if figures[0].met:
        columns += [
            (number("slo_met", "%", "SLO met"), lambda each: each.met.value if each.met else None),
            (number("goodput_per_s", heading="goodput", form=rate), lambda each: each.goodput_per_s),
        ]
    columns += [
        (
            number(f"{name.removesuffix('_s')}_p{percent}_s", "s", f"{NAMES[name]} p{percent}", latency),
            partial(_percentile, name, percent),
        )
        for name in LATENCIES
        for percent in (50, 99)
    ]
    columns += [
        (number("tokens_per_s", form=rate), lambda each: each.tokens_per_s),
        (number("late_p99_s", "s", form=latency), lambda each: dict(_lateness(each))["p99"]),
    ]
    rows = [[cell(each) for _, cell in columns] for each in figures]
    drop = ["ITL p50", "end to end p50", "ITL p99", "tokens/s", "late p99", "TPOT p50", "TTFT p50", "end to end p99"]
    yield Table.of([column for column, _ in columns], rows, drop=[*drop, "goodput"])


def _percentile(name: str, percent: int, figures: Figures) -> float | None:
    of = figures.percentiles.get(name)
    return of[percent].value if of else None


def _failures_output(figures: Sequence[Figures]) -> Iterator[Part]:
    """Yield how many requests failed, by kind, with the messages that came most often."""
    sentence = failed(figures)
    if not sentence:
        return
    yield Text(f"{sentence}:")
    messages = Counter(each.failure.message for of in figures for each in of.outcomes if each.failure)
    for message, times in messages.most_common(MOST_MESSAGES):
        yield Text(f"  {times} x {message}", indent="    ")


def _lateness(figures: Figures) -> list[tuple[str, float]]:
    late = figures.lateness_s
    return [("p50", float(np.quantile(late, 0.5))), ("p99", float(np.quantile(late, 0.99))), ("max", float(late.max()))]


def _plain(load: Load, path: Path | None) -> dict[str, Any]:
    """Return the figures of a load as values for JSON, with the file in which it is stored."""
    figures = figures_of(load)
    return {
        "path": None if path is None else str(path),
        **{name: getattr(load, name) for name in load.__struct_fields__ if name not in ("steps", "machine")},
        "highest": found_rate(load),
        "steps": [
            {
                "rate_per_s": each.step.rate_per_s,
                "seconds": each.step.seconds,
                "planned": each.step.planned,
                "answered": each.answered,
                "failures": each.failures,
                "overloaded": each.is_overloaded,
                "met": each.met,
                "goodput_per_s": each.goodput_per_s,
                "tokens_per_s": each.tokens_per_s,
                "latencies": {
                    name: {f"p{percent}": estimate for percent, estimate in of.items()}
                    for name, of in each.percentiles.items()
                },
                "lateness_s": dict(_lateness(each)),
            }
            for each in figures
        ],
        "doubts": doubts(load),
    }
