"""Pictures of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarker.configurations import label
from benchmarker.errors import UserError
from benchmarker.pairing import step_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarker.matching import Match

FORMATS = (".png", ".svg", ".pdf")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
"""Seconds of a unit, and its name."""


def boxes(matches: Sequence[Match], path: Path) -> None:
    """Draw a box of the step times of all timed blocks for each side of each match, and a dot for each trial's median.

    Boxes reach from quartile to quartile, whiskers to the 5th and 95th percentile. Raises `UserError` for a format
    that is not known, a folder that cannot be written, or where matplotlib is missing.
    """
    if path.suffix not in FORMATS:
        raise UserError(f"--plot={path}: draws {', '.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs the module 'matplotlib'; pip install 'benchmarker[plot]'") from error
    names: dict[str, list[np.ndarray]] = {}
    for match in matches:
        for side in (match.baseline, match.contender):
            name = f"{label(match.case, list(match.case))} {side.name}".strip()
            if found := [step_times(record) for record in side.records if record.blocks]:
                names[name] = found
    if not names:
        raise UserError("--plot: no trial has a timed block")
    typical = float(np.median(np.concatenate([each for found in names.values() for each in found])))
    scale, unit = next((scale, unit) for scale, unit in UNITS if typical >= scale or unit == "ns")
    figure = Figure(figsize=(8, 1.2 + 0.5 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    axes.boxplot(
        [np.concatenate(found) / scale for found in names.values()],
        orientation="horizontal",
        whis=(5, 95),
        showfliers=False,
        tick_labels=[name.replace("$", r"\$") for name in names],
    )
    for row, found in enumerate(names.values(), 1):
        medians = [float(np.median(each)) / scale for each in found]
        axes.plot(medians, np.full(len(medians), row + 0.32), "o", markersize=3, alpha=0.6, color="tab:blue")
    axes.invert_yaxis()
    axes.set_xlabel(
        f"step time, {unit} (box: all timed blocks together; dots: medians of trials, which are what is compared)"
    )
    axes.set_xlim(left=0)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
