"""Options of a load: rates, lengths and service level objectives."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import click

from benchmarker.cli.options.types import LARGEST_NUMBER
from benchmarker.formatting import duration_s
from benchmarker.records.load import MOST_TOKENS, Lengths, Slo

LATENCIES = tuple(name.removesuffix("_s") for name in Slo.__struct_fields__)


class Range(NamedTuple):
    """Rates between which to search, in requests/s."""

    low: float
    high: float


class Rates(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Rates in requests/s: `4`, a list `1,2,4`, or a range to search `1..20`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Range | list[float]:
        """Return the range, or the list."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # click converts twice
        low, dots, high = value.partition("..")
        rates = [self._rate(each, param, ctx) for each in ((low, high) if dots else value.split(","))]
        if not dots:
            return rates
        if rates[0] >= rates[1]:
            self.fail(f"{value}: the lower rate comes first: 1..20", param, ctx)
        return Range(*rates)

    def _rate(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not 0 < rate <= LARGEST_NUMBER:
            self.fail(f"{text!r} is not a rate in requests/s: write 4, 1,2,4 or 1..20", param, ctx)
        return rate


class TokenCounts(click.ParamType):  # type: ignore[type-arg]
    """Lengths in tokens: `512`, or a range from which each is drawn `128..1024`."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lengths:
        """Return the lengths."""
        if isinstance(value, Lengths):
            return value
        low, dots, high = value.partition("..")
        try:
            lengths = Lengths(int(low), int(high if dots else low))
        except ValueError:
            lengths = Lengths(1, MOST_TOKENS + 1)
        if lengths.low < 1 or lengths.high > MOST_TOKENS:
            self.fail(f"{value!r} is not a number of tokens: write 512 or 128..1024", param, ctx)
        return lengths


class Objective(click.ParamType):  # type: ignore[type-arg]
    """A service level objective: `ttft=500ms,tpot=50ms`."""

    name = "slo"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Slo:
        """Return the objective."""
        if isinstance(value, Slo):
            return value
        limits: dict[str, float] = {}
        for each in value.split(","):
            name, equals, text = (word.strip() for word in each.partition("="))
            if not equals or name not in LATENCIES:
                names = ", ".join(LATENCIES)
                self.fail(f"{each!r} is not a latency with its limit ({names}): write ttft=500ms,tpot=50ms", param, ctx)
            if f"{name}_s" in limits:
                self.fail(f"{name} has two limits; leave one out", param, ctx)
            try:
                limit_s = duration_s(text)
            except ValueError as error:
                self.fail(f"{name}: {error}", param, ctx)
            if not 0 < limit_s <= LARGEST_NUMBER:
                self.fail(f"{name}: {text} is not a time above 0", param, ctx)
            limits[f"{name}_s"] = limit_s
        return Slo(**limits)
