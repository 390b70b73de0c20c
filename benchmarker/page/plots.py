"""Draw comparisons, rooflines, scaling and trade-offs as image files."""

from __future__ import annotations

import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.comparing.formatting import short
from benchmarker.comparing.scaling_results import labels
from benchmarker.hooks.registry import needing
from benchmarker.records.step_times import step_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarker.comparing.matching import Match
    from benchmarker.comparing.pareto import Candidate
    from benchmarker.comparing.scaling_results import Series
    from benchmarker.roofline.model import Level, Roofline

FORMATS = (".png", ".svg", ".pdf")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
"""Units of time: seconds per unit, and name."""
_MARKERS: dict[Level, str] = {"step": "o", "phase": "^", "scope": "s", "kernel": "."}
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""The palette of Okabe and Ito (2008), which the colour-blind can distinguish."""
_REST = "#999999"


def boxes(matches: Sequence[Match], path: Path) -> None:
    """Draw a box of the step times of all timed blocks for each side of each match, and a dot for each trial's median.

    Boxes span the quartiles, whiskers the 5th to 95th percentile. Raises `UserError` if there is no timed block, if
    the format is unknown, if the file cannot be written, or if matplotlib is missing.
    """
    names: dict[str, list[np.ndarray]] = {}
    for match in matches:
        for side in (match.baseline, match.contender):
            name = f"{match.name} {short(side.name)}".strip()
            if found := [step_times(record) for record in side.records if record.blocks]:
                names[name] = found
    if not names:
        raise UserError("no trial has a timed block to draw")
    typical = float(np.median(np.concatenate([each for found in names.values() for each in found])))
    scale, unit = next((scale, unit) for scale, unit in UNITS if typical >= scale or unit == "ns")
    with _drawing(path, height=1.2 + 0.5 * len(names)) as axes:
        axes.boxplot(
            [np.concatenate(found) / scale for found in names.values()],
            orientation="horizontal",
            whis=(5, 95),
            showfliers=False,
            tick_labels=[_plain(name) for name in names],
        )
        for row, found in enumerate(names.values(), 1):
            medians = [float(np.median(each)) / scale for each in found]
            axes.plot(medians, np.full(len(medians), row + 0.32), "o", markersize=3, alpha=0.6, color="tab:blue")
        axes.invert_yaxis()
        axes.set_xlabel(
            f"step time, {unit} (box: all timed blocks together; dots: medians of trials, which are compared)"
        )
        axes.set_xlim(left=0)


def roofs(found: Sequence[Roofline], path: Path) -> None:
    """Draw the points of rooflines under their roofs, both axes logarithmic.

    Work without FLOPs cannot be shown on such axes and is left out. Raises `UserError` like `boxes`.
    """
    drawn = [(each, [point for point in each.points if point.flops]) for each in found]
    intensities = [point.intensity for _, points in drawn for point in points]
    if not intensities:
        raise UserError("no work with FLOPs to draw")
    least, most = min(intensities) / 4, max(intensities) * 4
    with _drawing(path, height=5.5 + 0.2 * min(len(found), len(_COLORS) + 1)) as axes:
        for roof in dict.fromkeys(each.roof for each in found):
            xs = [least, *([roof.ridge] if least < roof.ridge < most else []), most]
            axes.plot(xs, [roof.attainable(x) for x in xs], color="black", linewidth=1.5)
            axes.annotate(
                _plain(roof.name), (most, roof.attainable(most)), (-4, 4), textcoords="offset points", ha="right"
            )
        for number, (each, points) in enumerate(drawn):
            color = _COLORS[number] if number < len(_COLORS) else _REST
            for kind, marker in _MARKERS.items():
                chosen = [point for point in points if point.level == kind]
                xs, ys = [point.intensity for point in chosen], [point.achieved for point in chosen]
                axes.plot(xs, ys, marker, color=color, alpha=0.8)
            if number < len(_COLORS):
                axes.plot(
                    [], [], "o", color=color, label=_plain(textwrap.shorten(each.configuration, 100, placeholder=" …"))
                )
        if len(drawn) > len(_COLORS):
            axes.plot([], [], "o", color=_REST, label=f"{len(drawn) - len(_COLORS)} more")
        axes.set(xscale="log", yscale="log", xlim=(least, most))
        axes.set_xlabel("arithmetic intensity, FLOP/byte")
        axes.set_ylabel("FLOP/s")
        axes.grid(which="both", alpha=0.2)
        axes.set_title("o step, \u25b4 phase, \u25aa scope, \u00b7 kernel", fontsize="small", loc="left")
        axes.figure.legend(loc="outside lower left", fontsize="small")


def speedups(found: Sequence[Series], path: Path) -> None:
    """Draw the speed-up of each series over the number of devices, with intervals and the ideal line.

    Both axes are logarithmic, so that equal efficiency is a parallel to the ideal line. Raises `UserError` like
    `boxes`.
    """
    if not found:
        raise UserError("no series of several numbers of devices to draw")
    devices = sorted({point.devices for each in found for point in each.points})
    with _drawing(path, height=5 + 0.2 * min(len(found), len(_COLORS))) as axes:
        axes.plot(devices, devices, "--", color="black", linewidth=1, label="ideal: as many times as there are devices")
        names, shared = labels(found)
        for number, (each, name) in enumerate(zip(found, names, strict=True)):
            points = each.points
            ys = [point.speedup.value for point in points]
            ends = [(point.speedup.low, point.speedup.high) for point in points]
            axes.errorbar(
                [point.devices for point in points],
                ys,
                yerr=[
                    [0.0 if low is None else y - low for y, (low, _) in zip(ys, ends, strict=True)],
                    [0.0 if high is None else high - y for y, (_, high) in zip(ys, ends, strict=True)],
                ],
                marker="o" if each.scaling == "strong" else "s",
                capsize=3,
                color=_COLORS[number] if number < len(_COLORS) else _REST,
                label=_plain(textwrap.shorten(name, 100, placeholder=" …")),
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(devices, [str(number) for number in devices])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("devices")
        axes.set_ylabel("speed-up over one device")
        axes.set_title(_plain(textwrap.shorten(shared, 100, placeholder=" …")), fontsize="small", loc="left")
        axes.grid(which="both", alpha=0.2)
        axes.figure.legend(loc="outside lower left", fontsize="small")


def frontiers(fronts: Sequence[Sequence[tuple[str, Candidate[Any]]]], metrics: Sequence[str], path: Path) -> None:
    """Draw the first of two metrics over the second: the configurations of each work, with their names.

    Optimal ones are filled and joined. An axis is logarithmic if its values differ by more than a factor of 30; zeros
    are then at its end. Raises `UserError` like `boxes`, and if there are more or fewer metrics.
    """
    if len(metrics) != 2:
        raise UserError(f"a plot has two axes; name two metrics, not {len(metrics)}: {', '.join(metrics)}")
    with _drawing(path, height=5.5) as axes:
        for number, front in enumerate(fronts):
            color = _COLORS[number] if number < len(_COLORS) else _REST
            for name, point in front:
                y, x = point.values
                axes.plot(x, y, "o", color=color, fillstyle="full" if point.optimal else "none")
                axes.annotate(_plain(name), (x, y), (5, 3), textcoords="offset points", fontsize="small")
            line = sorted((x, y) for y, x in (point.values for _, point in front if point.optimal))
            axes.plot(*zip(*line, strict=True), color=color, linewidth=1)
        of_axes = zip(*(point.values for front in fronts for _, point in front), strict=True)
        for values, name, which in zip(of_axes, metrics, ("y", "x"), strict=True):
            sizes = [abs(value) for value in values if value]
            scaled, limited = getattr(axes, f"set_{which}scale"), getattr(axes, f"set_{which}lim")
            if sizes and max(sizes) > 30 * min(sizes):
                if 0 in values:
                    scaled("symlog", linthresh=min(sizes))
                    limited(min(*values, -min(sizes) / 2), 2 * max(values))
                else:
                    scaled("log")
            getattr(axes, f"set_{which}label")(name)
        axes.margins(0.1)
        axes.grid(alpha=0.2)


@contextmanager
def _drawing(path: Path, height: float) -> Iterator[Any]:
    """Yield axes to draw into and save the figure at the end; `height` is in inches."""
    if path.suffix not in FORMATS:
        raise UserError(f"cannot draw {path}: the supported formats are {', '.join(FORMATS)}")
    with needing("plot", "a plot"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(8, height), layout="constrained")
    yield figure.add_subplot()
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _plain(text: str) -> str:
    """Return text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")
