"""Comparisons as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table
from benchmarker.cli.display.profiles import cell
from benchmarker.comparing.formatting import line, numbers, percent, ratio, verdict
from benchmarker.comparing.results import METHODS
from benchmarker.formatting import clean, si
from benchmarker.records.configurations import label, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.comparing.results import Classical, Comparison, Family, GeometricMean


def print_family(family: Family) -> None:
    """Print one comparison in full, several as a table."""
    comparisons = family.comparisons
    if len(comparisons) == 1:
        print_one(comparisons[0])
    elif comparisons:
        _print_several(family)
    _print_left_out(family)


def _print_left_out(family: Family) -> None:
    """Print the notes on the family and what could not be compared."""
    for note in family.notes:
        click.echo(clean(f"  note: {note}"))
    for name in family.unmatched:
        click.echo(clean(f"not compared, no counterpart: {name}"))


def print_one(comparison: Comparison) -> None:
    """Print a comparison: its sides, the line with the verdict, the method and the notes."""
    unit = comparison.unit
    what = f"{comparison.metric} of {label(comparison.case, list(comparison.case))}".removesuffix(" of ")
    click.echo(clean(f"{what}, median over trials, and the contender (B) over the baseline (A)"))
    for name, side, value, trials in (
        ("A", comparison.baseline, comparison.baseline_value, comparison.trials[0]),
        ("B", comparison.contender, comparison.contender_value, comparison.trials[1]),
    ):
        click.echo(clean(f"{name}  {side}: {si(value, unit)}, {trials} trial{'s' * (trials != 1)}"))
    click.echo(clean(line(comparison)))
    click.echo(f"  {METHODS[comparison.method]}")
    for note in comparison.notes:
        click.echo(clean(f"  note: {note}"))


def _print_several(family: Family) -> None:
    comparisons = family.comparisons
    first = comparisons[0]
    axes = list(dict.fromkeys(name for each in comparisons for name in each.case))
    click.echo(
        f"{first.metric}, median over trials; B/A with its {percent(first.level)} interval; "
        f"p adjusted for {len(comparisons)} comparisons (Holm); δ {percent(first.delta)}"
    )
    rows = [
        [
            *map(_cut, _case(each, axes)),
            each.baseline,
            each.contender,
            si(each.baseline_value, each.unit),
            si(each.contender_value, each.unit),
            ratio(each),
            numbers(each).removesuffix(" rounds").removesuffix(" trials"),
            "-" if each.p_adjusted is None else f"{each.p_adjusted:.2g}",
            verdict(each),
        ]
        for each in comparisons
    ]
    print_table([*axes, "baseline A", "contender B", "A", "B", "B/A", "n", "p", "verdict"], rows)
    for mean in family.geometric_means:
        click.echo(
            clean(
                f"geometric mean over {mean.cases} cases, {mean.contender} over {mean.baseline}: "
                f"{ratio(mean)} {verdict(mean).upper()} ({mean.method})"
            )
        )
        for note in mean.notes:
            click.echo(clean(f"  note: {note}"))
    _print_notes(comparisons, axes)


def _case(comparison: Comparison, axes: Sequence[str]) -> tuple[str, ...]:
    """Return a comparison's case as columns."""
    return tuple(str(comparison.case.get(axis, "-")) for axis in axes)


def _cut(name: str) -> str:
    """Return a name, which may be a kernel's, shortened to fit a table."""
    return cell("kernel", name)


def _print_notes(comparisons: Sequence[Comparison], axes: Sequence[str]) -> None:
    """Print the methods, then each note once with the comparisons that it applies to."""
    for method in dict.fromkeys(each.method for each in comparisons):
        click.echo(f"  {METHODS[method]}")
    about: dict[str, list[str]] = {}
    for each in comparisons:
        for note in each.notes:
            where = label({name: _cut(text(value)) for name, value in each.case.items()}, axes)
            about.setdefault(note, []).append(f"{where} {each.contender}".strip())
    for note, names in about.items():
        where = "all" if len(names) == len(comparisons) else ", ".join(names[:3])
        more = f" and {len(names) - 3} more" if where != "all" and len(names) > 3 else ""
        click.echo(clean(f"  note ({where}{more}): {note}"))


def print_speedups(family: Family) -> None:
    """Print speed-ups over the baseline, a row per case and a column per contender; `?` marks undecided ones."""
    comparisons, first = family.comparisons, family.comparisons[0]
    axes = list(dict.fromkeys(name for each in comparisons for name in each.case))
    contenders = list(dict.fromkeys(each.contender for each in comparisons))
    cases = list(dict.fromkeys(_case(each, axes) for each in comparisons))
    cells = {(_case(each, axes), each.contender): _speedup(each) for each in comparisons}
    same = f"= the same within {percent(first.delta)}"
    click.echo(clean(f"speed-up over {first.baseline} by {first.metric}; ? is undecided, {same}"))
    rows = [[*map(_cut, case), *(cells.get((case, contender), "-") for contender in contenders)] for case in cases]
    means = {mean.contender: _speedup(mean) for mean in family.geometric_means}
    if means and axes:
        rows.append(["geometric mean", *[""] * (len(axes) - 1), *(means.get(name, "-") for name in contenders)])
    print_table([*axes, *contenders], rows)
    _print_notes(comparisons, axes)
    _print_left_out(family)


def _speedup(each: Comparison | GeometricMean) -> str:
    if each.ratio is None:
        return "-"
    mark = {"undecided": " ?", "same": " ="}.get(each.verdict, "")
    return f"{each.ratio if each.better == 'higher' else 1 / each.ratio:.3g}x{mark}"


def print_classical(tables: Sequence[Classical], *, tests: bool) -> None:
    """Print statistics of all timed blocks and, with `tests`, tests as if blocks were independent, with a warning."""
    click.echo("\nStep times of all timed blocks:")
    rows = []
    for table in tables:
        where = label(table.case, list(table.case))
        for name, found in ((table.baseline, table.baseline_blocks), (table.contender, table.contender_blocks)):
            times = (found.mean, found.deviation, found.minimum, found.q1, found.median, found.q3, found.maximum)
            rows.append([f"{where} {name}".strip(), str(found.n), *(si(value, "s") for value in times)])
    print_table(["blocks of", "n", "mean", "deviation", "min", "q1", "median", "q3", "max"], rows)
    if not tests:
        return
    click.echo("tests that treat blocks as independent, although blocks of one process are not:")
    for table in tables:
        test = table.rank_sum
        click.echo(
            clean(
                f"{label(table.case, list(table.case))} {table.baseline} vs {table.contender}: "
                f"rank-sum statistic {test.statistic:.3f} (p {test.p_value:.2g}), "
                f"Mann-Whitney U {test.u:.0f} (p {test.u_p_value:.2g})".strip()
            )
        )
