"""Format verdicts as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarker.comparing.results import Comparison, GeometricMean


def line(comparison: Comparison) -> str:
    """Format a comparison as one line."""
    timed = "" if comparison.timed_blocks is None else f" x {comparison.timed_blocks:.0f} timed blocks"
    parts = [
        f"B/A {ratio(comparison)} {verdict(comparison).upper()}{_enough(comparison)}",
        f"{numbers(comparison)}{timed}",
    ]
    if comparison.p_value is not None and comparison.p_adjusted is not None:
        adjusted = comparison.p_adjusted != comparison.p_value
        parts.append(f"p {comparison.p_value:.2g}" + (f" (adjusted {comparison.p_adjusted:.2g})" if adjusted else ""))
    parts.append(f"δ {percent(comparison.delta)}")
    if comparison.probability_lower is not None:
        parts.append(f"B lower with probability {comparison.probability_lower:.2f}")
    if comparison.process_deviation is not None:
        parts.append(f"process sd {percent(math.expm1(comparison.process_deviation))}")
    if comparison.design_effect is not None:
        parts.append(f"design effect {comparison.design_effect:.3g}x")
    if comparison.low_noise_ratio is not None:
        parts.append(f"p10 B/A {figure(comparison.low_noise_ratio)}")
    return "; ".join(parts)


def verdict(judged: Comparison | GeometricMean) -> str:
    """Return the verdict, and whether it is provisional."""
    return f"{judged.verdict} (provisional)" if judged.provisional else judged.verdict


def likely(enough: int | None, *, is_paired: bool) -> str:
    """Return how many rounds or trials would likely decide, in words."""
    return f"{enough or 'more than 1000'} {'rounds' if is_paired else 'trials per side'} would likely decide"


def numbers(comparison: Comparison) -> str:
    """Return how many rounds, or trials of each side, were compared."""
    if comparison.rounds is not None:
        return f"{comparison.rounds} rounds"
    a, b = comparison.trials
    return f"{a} and {b} trials"


def percent(share: float) -> str:
    """Format a share with three significant digits: `2%`, `0.5%`, `99%`."""
    return f"{100 * share:.3g}%"


def ratio(comparison: Comparison | GeometricMean) -> str:
    """Format a ratio with its interval: `1.031 [1.012, 1.049]`."""
    if comparison.ratio is None:
        return "-"
    if comparison.low is None or comparison.high is None:
        return f"{figure(comparison.ratio)} [no interval]"
    return f"{figure(comparison.ratio)} [{figure(comparison.low)}, {figure(comparison.high)}]"


def figure(value: float) -> str:
    """Format a ratio with three decimals, or with three significant digits if it is far from 1."""
    return f"{value:.3f}" if 0.1 <= value < 100 else f"{value:.3g}"


def _enough(comparison: Comparison) -> str:
    if comparison.verdict != "undecided" or comparison.p_value is None:
        return ""
    return f" ({likely(comparison.enough, is_paired=comparison.method == 'paired')})"
