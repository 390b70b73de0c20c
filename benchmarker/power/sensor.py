"""One sensor's energy over the timed window: preferably from its counter, and in addition from its polled powers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarker.power.series import Series, aliases, gaps_s, integral, risen, still_s, update_s
from benchmarker.records.energy import SensorEnergy, SensorFlag

AGREEMENT = 0.1
"""The counter is suspect if it differs from the polled powers by a larger share."""
MIN_UPDATES = 10
"""A window with fewer new values of a sensor is too short for a figure between its edges."""
_TOO_SHORT = f"{{:.2g}} s contain fewer than {MIN_UPDATES} of its updates; use a longer timed part"
STILL_S = 2.0
"""The counter of a device that draws power does not stay unchanged for this long."""
LONGEST_GAP_S = 60.0
"""In a longer gap a counter may have wrapped more than once."""
LEAST_COVERAGE = 0.9
"""Readings that cover a smaller share of the window are not integrated."""
GAP_S = 0.25
GAP_PERIODS = 3
"""A time without a reading is a gap if it is longer than `GAP_S` and than this many of the sampler's periods."""
LONG_WINDOWS = 10
"""A moving average lags by half its window: it is integrated if the timed part is at least this many windows long."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the idle period and of the edges, in ns of the monotonic clock; sampling period and step time, s."""

    rest_ns: tuple[int, int]
    edges_ns: tuple[int, int] | None
    period_s: float
    step_s: float


@dataclass(slots=True)
class _Part:
    """An energy (J) or the reason why there is none, with counter wraps and flags."""

    energy_J: float | None = None
    why: str = ""
    wraps: int = 0
    flags: list[SensorFlag] = field(default_factory=list)


def sensor_energy(
    meter: str, of: Sequence[Series], timing: Timing, *, measured: bool
) -> tuple[SensorEnergy, dict[str, str]]:
    """Return the sensor of these series, one of which is energy or power, and the reasons for its nulls by field."""
    by_quantity: dict[str, Series] = {one.channel.quantity: one for one in of}
    counter, polled = by_quantity.get("energy_J"), _polled(by_quantity, timing)
    source = polled or counter
    assert source is not None
    at_rest = by_quantity.get("power_instant_W") or source  # an average still includes the time before the idle period
    channel = source.channel
    observed_s = update_s(source)
    reasons: dict[str, str] = {}

    def or_reason(name: str, value: Any, why: str) -> Any:
        if value is None:
            reasons[name] = why
        return value

    n, coverage, gaps = 0, 0.0, 0
    if timing.edges_ns is None:
        counted = held = _Part(why=f"{source.reason}: it gave no reading at the edges of the timed window")
        powers = np.empty(0)
    else:
        inside = source.within(*timing.edges_ns).valid()
        n = len(inside.values)
        gaps, coverage = _coverage(inside, timing)
        counted = _counted(counter, polled, timing.edges_ns)
        held = _held(polled, coverage, observed_s, timing)
        powers = inside.values if polled else _rises_w(inside, timing) if counted.energy_J is not None else np.empty(0)
    none = "; ".join(dict.fromkeys(part.why for part, of in ((counted, counter), (held, polled)) if of and part.why))
    energy_j = counted.energy_J if counted.energy_J is not None else held.energy_J
    ratio = counted.energy_J / held.energy_J if counted.energy_J is not None and held.energy_J else None
    flags: list[SensorFlag] = [*counted.flags, *held.flags]
    if channel.shared:
        flags.append("shared")
    if ratio is not None and abs(ratio - 1) > AGREEMENT:
        flags.append("counter_suspect")
    if gaps:
        flags.append("gaps")
    begin_ns, end_ns = timing.edges_ns or (None, None)
    mean_w = None
    if energy_j is not None and begin_ns is not None and end_ns is not None:
        mean_w = energy_j / ((end_ns - begin_ns) / 1e9)
    p50, p95, peak = np.percentile(powers, [50, 95, 100]).tolist() if len(powers) else (None, None, None)
    method = None if energy_j is None else "counter" if counted.energy_J is not None else "polled"
    return SensorEnergy(
        meter=meter,
        id=channel.id,
        device=channel.device,
        domain=channel.domain,
        scope=channel.scope,
        measured=measured,
        begin_ns=or_reason("begin_ns", begin_ns, counted.why),
        end_ns=or_reason("end_ns", end_ns, counted.why),
        energy_J=or_reason("energy_J", energy_j, none),
        method=or_reason("method", method, none),
        polled_J=or_reason("polled_J", held.energy_J, held.why),
        ratio=or_reason("ratio", ratio, counted.why or held.why),
        mean_W=or_reason("mean_W", mean_w, none),
        p50_W=or_reason("p50_W", p50, none),
        p95_W=or_reason("p95_W", p95, none),
        peak_W=or_reason("peak_W", peak, none),
        idle_W=or_reason(
            "idle_W",
            _mean_w(at_rest, timing.rest_ns),
            "it was not read, or not correctly, while the machine was idle; --power=auto adds an idle period",
        ),
        update_ms=channel.update_ms,
        window_ms=channel.window_ms,
        observed_update_ms=or_reason(
            "observed_update_ms",
            observed_s and observed_s * 1e3,
            "its value changed too rarely to determine an update interval",
        ),
        accuracy_percent=channel.accuracy_percent,
        n=n,
        coverage=coverage,
        gaps=gaps,
        wraps=counted.wraps,
        flags=flags,
    ), reasons


def _polled(by_quantity: dict[str, Series], timing: Timing) -> Series | None:
    """Return the powers to integrate: the average if its lag matters little, otherwise the instantaneous power."""
    average, instant = by_quantity.get("power_average_W"), by_quantity.get("power_instant_W")
    if average is None or instant is None or timing.edges_ns is None:
        return average or instant
    begin_ns, end_ns = timing.edges_ns
    lag_ns = (average.channel.window_ms or 1000.0) * 1e6
    return average if end_ns - begin_ns >= LONG_WINDOWS * lag_ns else instant


def _counted(counter: Series | None, polled: Series | None, edges_ns: tuple[int, int]) -> _Part:
    """Return the rise of the counter between the edges, or why it cannot be trusted."""
    if counter is None:
        return _Part(why="it has no counter")
    inside = counter.within(*edges_ns)
    if not len(inside.values) or np.isnan(inside.values[[0, -1]]).any():
        return _Part(why=f"{counter.reason}: the counter gave no reading at an edge")
    inside = inside.valid()
    rises, wraps = risen(inside)
    if counter.channel.wraps_at is not None and (np.diff(inside.time_ns) > LONGEST_GAP_S * 1e9).any():
        return _Part(why=f"the counter was not read for {LONGEST_GAP_S:g} s and may have wrapped unseen")
    if np.isnan(rises).any():
        return _Part(why="the counter ran backwards", flags=["counter_backwards"])
    still = still_s(inside)
    powers = polled.within(*edges_ns).valid().values if polled else np.empty(0)
    takes_power = not len(powers) or powers.max() > 0
    if takes_power and still >= min(STILL_S, (edges_ns[1] - edges_ns[0]) / 1e9):
        return _Part(why=f"the counter did not change for {still:.2g} s", flags=["counter_stalled"])
    if takes_power and (rises > 0).sum() < MIN_UPDATES:
        return _Part(why=_TOO_SHORT.format((edges_ns[1] - edges_ns[0]) / 1e9))
    return _Part(float(rises.sum()), wraps=wraps)


def _held(polled: Series | None, coverage: float, observed_s: float | None, timing: Timing) -> _Part:
    """Return the integral of the polled powers, each held until the next, or why they are not integrated."""
    if polled is None:
        return _Part(why="it has no power reading")
    assert timing.edges_ns is not None
    seconds = (timing.edges_ns[1] - timing.edges_ns[0]) / 1e9
    flags: list[SensorFlag] = ["aliasing"] if aliases(timing.step_s, polled.channel, timing.period_s) else []
    update_s_ = max(timing.period_s, observed_s or (polled.channel.update_ms or 0.0) / 1e3)
    if coverage < LEAST_COVERAGE:
        return _Part(why=f"{polled.reason}: its readings cover {coverage:.0%} of the window", flags=flags)
    if seconds < MIN_UPDATES * update_s_:
        return _Part(why=_TOO_SHORT.format(seconds), flags=flags)
    return _Part(integral(polled.within(*timing.edges_ns).valid(), *timing.edges_ns), flags=flags)


def _coverage(inside: Series, timing: Timing) -> tuple[int, float]:
    """Return the number of gaps between the readings, and the share of the window outside them."""
    assert timing.edges_ns is not None
    begin_ns, end_ns = timing.edges_ns
    if not len(inside.values) or end_ns <= begin_ns:
        return 0, 0.0
    gaps, beyond_s = gaps_s(inside, begin_ns, end_ns, max(GAP_S, GAP_PERIODS * timing.period_s))
    return gaps, max(0.0, 1 - beyond_s * 1e9 / (end_ns - begin_ns))


def _rises_w(inside: Series, timing: Timing) -> npt.NDArray[np.float64]:
    """Return a counter's mean power from tick to tick, W; intervals too short because of an edge are skipped."""
    rises, _ = risen(inside)
    seconds = np.diff(inside.time_ns) / 1e9
    apart = seconds > timing.period_s / 2
    return np.asarray(rises[apart] / seconds[apart])


def _mean_w(source: Series, between_ns: tuple[int, int]) -> float | None:
    """Return the mean power between two times, from the counter if the source is one; None if it ran backwards."""
    inside = source.within(*between_ns).valid()
    if len(inside.values) < 2:
        return None
    if source.channel.quantity != "energy_J":
        return integral(inside, *between_ns) / ((between_ns[1] - between_ns[0]) / 1e9)
    rises, _ = risen(inside)
    if np.isnan(rises).any():
        return None
    return float(rises.sum() / ((inside.time_ns[-1] - inside.time_ns[0]) / 1e9))
