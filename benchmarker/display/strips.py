"""A plot of the timed blocks of each record, as SVG that needs neither a network nor a script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.formatting import clean, si
from benchmarker.records.step_times import step_times

if TYPE_CHECKING:
    from benchmarker.records.record import Record

WIDTH, LABEL, ROW, MARGIN = 720, 220, 28, 60
"""Of the plot, of the names at its left, of a row, and of the space at its right, in pixels."""
MOST_DOTS = 200
SHOWN = 99
"""Percentile of all blocks at which the axis ends: what is slower stands at the edge."""
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def strips(named: Sequence[tuple[str, str, Sequence[Record]]]) -> str:
    """Return a row for each case: its name, what gives its colour, and the blocks of its records as dots.

    The axis begins at 0, and a line is the median.
    """
    rows = [
        (name, side, np.concatenate([step_times(record) for record in records if record.blocks] or [np.array([])]))
        for name, side, records in named
    ]
    rows = [row for row in rows if len(row[2])]
    if not rows:
        return ""
    most = float(np.percentile(np.concatenate([times for _, _, times in rows]), SHOWN)) * 1.02
    sides = list(dict.fromkeys(side for _, side, _ in rows))
    height = ROW * len(rows) + ROW
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        'font-family="sans-serif" font-size="12"><title>step time of each timed block</title>'
    ]

    def x(seconds: float) -> float:
        return round(LABEL + min(1.0, seconds / most) * (WIDTH - LABEL - MARGIN), 1)

    for number, (name, side, times) in enumerate(rows):
        y, colour = ROW * number + ROW // 2, COLOURS[sides.index(side) % len(COLOURS)]
        median = float(np.median(times))
        parts.append(f'<text x="0" y="{y + 4}" fill="currentColor">{escape(clean(name))}</text>')
        shown = times[:: -(-len(times) // MOST_DOTS)]
        parts += [
            f'<circle cx="{x(seconds)}" cy="{y - 6 + 12 * (at % 7) / 6:.1f}" r="2" fill="{colour}" fill-opacity=".4"/>'
            for at, seconds in enumerate(shown)
        ]
        parts.append(f'<path d="M{x(median)} {y - 11}v22" stroke="{colour}" stroke-width="2"/>')
        end = WIDTH - MARGIN + 4
        parts.append(f'<text x="{end}" y="{y + 4}" fill="currentColor">{escape(si(median, "s"))}</text>')
    axis = ROW * len(rows) + 4
    parts.append(f'<path d="M{LABEL} {axis}H{WIDTH - MARGIN}" stroke="currentColor"/>')
    parts.append(f'<text x="{LABEL}" y="{axis + 16}" fill="currentColor">0</text>')
    parts.append(
        f'<text x="{WIDTH - MARGIN}" y="{axis + 16}" text-anchor="end" fill="currentColor">'
        f"{escape(si(most, 's', 2))} per step, a dot for each block, a line at the median</text></svg>\n"
    )
    return "".join(parts)
