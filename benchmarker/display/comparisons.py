"""Comparisons as text."""

from collections.abc import Iterator, Sequence

from benchmarker.comparing.formatting import (
    DOUBTS,
    FROM_PAIRS,
    Terms,
    details,
    enough,
    gist,
    measure,
    numbers,
    over_cases,
    percent,
    ratio,
    sentence,
    short,
    tally,
)
from benchmarker.comparing.profiled_parts import AXES
from benchmarker.comparing.results import METHODS, Classical, Comparison, Family, GeometricMean
from benchmarker.display.result import Part, Text
from benchmarker.formatting import shortened, si, some
from benchmarker.records.factors import label, text
from benchmarker.tables.shortening import WIDEST
from benchmarker.tables.table import NOTHING, P_VALUE, Cell, Column, Filled, Shown, Table, interval, number

COLOURS = {"faster": "green", "better": "green", "slower": "red", "worse": "red", "undecided": "yellow", "same": ""}
"""Colours of the verdicts."""
_LETTERS = tuple(enumerate("AB"))
MOST_EXPLAINED = 4
"""Comparisons of several of which it is said what accounts for the difference."""
LONGEST = 16
"""Longest name of a side that is the heading of its column."""


def family_output(
    family: Family,
    *,
    wide: bool = False,
    verbose: bool = False,
    tabular: bool = False,
    most_notes: int | None = None,
) -> Iterator[Part]:
    """Yield one comparison as a paragraph, several as a table; one also as a table if `tabular`.

    `verbose` adds the tests; `most_notes` limits the notes on several to the most frequent ones.
    """
    comparisons = family.comparisons
    if len(comparisons) == 1:
        yield from _one_output(comparisons[0], family.shared, verbose=verbose)
        if tabular:
            yield _table(comparisons, wide=wide, verbose=verbose)
    elif comparisons:
        yield from _several_output(family, most_notes, wide=wide, verbose=verbose)
    yield from _left_out_output(family)


def _left_out_output(family: Family) -> Iterator[Part]:
    """Yield the notes on the family and what could not be compared."""
    for note in family.notes:
        yield Text(f"  note: {short(note)}", "    ")
    for name in family.unmatched:
        yield Text(f"not compared, no counterpart: {short(name)}", "  ")


def _one_output(each: Comparison, shared: str, *, verbose: bool) -> Iterator[Part]:
    """Yield a comparison: the verdict, the figures behind it, its case, and what makes one doubt it."""
    said = "; ".join(filter(None, [sentence(each, Terms.of(each)), enough(each)]))
    yield Text(said, "  ", COLOURS[each.verdict])
    a, b = (
        f"{short(side)} ({letter}) {si(value, each.unit)}"
        for side, letter, value in (
            (each.baseline, "A", each.baseline_value),
            (each.contender, "B", each.contender_value),
        )
    )
    interval = f" ({percent(each.level)} interval)" if each.low is not None else ""
    figures = f"{measure(each.metric)}, medians over trials: {a}, {b}; B/A {ratio(each)}{interval}; {numbers(each)}"
    yield Text(f"  {figures}", "    ")
    if where := " ".join(filter(None, [each.name, _part(each), shared])):
        yield Text(f"  {where}", "    ")
    if each.explanation:
        yield Text(f"  {each.explanation}", "    ")
    if verbose:
        yield Text(f"  {details(each)}", "    ")
        yield Text(f"  {METHODS[each.method]}", "    ")
    for note in _doubts(each):
        yield Text(f"  note: {note}", "    ")


def _doubts(each: Comparison) -> list[str]:
    """Return why one may doubt a comparison."""
    method = [DOUBTS[each.method]] if each.method in DOUBTS and each.ratio is not None else []
    a, b = each.baseline_value, each.contender_value
    if each.ratio and a and b and (b / a - 1) * (each.ratio - 1) < 0:
        method.append(f"the medians differ in the other direction than B/A, which {FROM_PAIRS}")
    return [*method, *map(short, each.notes)]


def _part(each: Comparison) -> str:
    """Return the part of a step that is compared, empty if it is the whole step."""
    return label({name: shortened(text(value), WIDEST) for name, value in each.case.items()}, AXES["kernel"])


def _several_output(family: Family, most_notes: int | None, *, wide: bool, verbose: bool) -> Iterator[Part]:
    comparisons = family.comparisons
    first, terms = comparisons[0], Terms.of(comparisons[0])
    yield from _means_output(family, terms, verbose=verbose)
    rounds = list(dict.fromkeys(map(numbers, comparisons)))
    same = [f"{measure(first.metric)}, medians over trials", *(rounds if len(rounds) == 1 else []), family.shared]
    yield Text("; ".join(filter(None, same)))
    if not _headings(comparisons):
        for letter, sides in zip("AB", _sides(comparisons), strict=True):
            if len(set(sides)) == 1:
                yield Text(f"{letter}: {sides[0]}", "  ")
    yield _table(comparisons, wide=wide, verbose=verbose)
    explained = [each for each in comparisons if each.explanation]
    for each in explained[: None if verbose else MOST_EXPLAINED]:
        yield Text(f"  {each.name or short(each.contender)}: {each.explanation}", "    ")
    if verbose:
        corrected = f"p adjusted for {len(comparisons)} comparisons (Holm)"
        yield Text(f"  B/A with its {percent(first.level)} interval; {corrected}; δ {percent(first.delta)}", "    ")
        for method in dict.fromkeys(each.method for each in comparisons):
            yield Text(f"  {METHODS[method]}", "    ")
    yield from _notes_output(comparisons, most_notes)


def _headings(comparisons: Sequence[Comparison]) -> tuple[str, str] | None:
    """Return the names of the two sides, if there are only two and they are short enough to head columns."""
    a, b = (set(sides) for sides in _sides(comparisons))
    if len(a) > 1 or len(b) > 1 or a == b or max(map(len, a | b)) > LONGEST:
        return None
    return a.pop(), b.pop()


def _table(comparisons: Sequence[Comparison], *, wide: bool, verbose: bool) -> Table:
    first, terms = comparisons[0], Terms.of(comparisons[0])
    filled = _cases(comparisons, wide=wide)
    headings = _headings(comparisons)
    one, other = headings or ("A", "B")
    if not headings:
        for heading, sides in zip(("baseline A", "contender B"), _sides(comparisons), strict=True):
            filled.append((Column(heading, only="data" if len(set(sides)) == 1 else ""), sides))
    filled += [
        (number(f"{first.metric} A", first.unit, one), [each.baseline_value for each in comparisons]),
        (number(f"{first.metric} B", first.unit, other), [each.contender_value for each in comparisons]),
        (
            Column("verdict", levels=(f"verdict on {other}",)),
            [Shown(each.verdict, gist(each, terms), COLOURS[each.verdict]) for each in comparisons],
        ),
        (Column("ratio", levels=("B/A",)), [Shown(each.ratio, ratio(each)) for each in comparisons]),
        *interval("ratio", [(each.low, each.high) for each in comparisons]),
    ]
    told = list(map(numbers, comparisons))
    if len(set(told)) > 1:
        texts = [text.removesuffix(" rounds").removesuffix(" trials") for text in told]
        filled.append((Column("n", only="print"), [Shown(None, text) for text in texts]))
    filled += [
        (number("p", P_VALUE, only="" if verbose else "data"), [each.p_adjusted for each in comparisons]),
        *((number(f"trials {side}", only="data"), [each.trials[at] for each in comparisons]) for at, side in _LETTERS),
        (number("rounds", only="data"), [each.rounds for each in comparisons]),
    ]
    return Table.of_columns(filled, drop=["n", "B/A", "p", one, other], cut=["kernel", "scope"], ordered=True)


def _means_output(family: Family, terms: Terms, *, verbose: bool) -> Iterator[Part]:
    """Yield the verdict over all cases for each pair of sides, or if there is none, how many verdicts of each kind."""
    for mean in family.geometric_means:
        yield Text(over_cases(mean, terms), "  ", COLOURS[mean.verdict])
        if verbose:
            yield Text(f"  B/A {ratio(mean)}, {mean.method}", "    ")
        for note in mean.notes:
            yield Text(f"  note: {short(note)}", "    ")
    unlike = [] if family.geometric_means else _executions(family.comparisons)
    yield Text(
        "; ".join(filter(None, [f"{len(family.comparisons)} comparisons: {tally(family.comparisons)}", *unlike])), "  "
    )


def _executions(comparisons: Sequence[Comparison]) -> list[str]:
    """Return what is said of eager and compiled sides, each once, and with what compiles them where that is known."""
    told = dict.fromkeys(each.execution for each in comparisons)
    return [text for text in told if not any(other.startswith(f"{text} (") for other in told)]


def _sides(comparisons: Sequence[Comparison]) -> tuple[list[str], list[str]]:
    """Return the short names of the baseline and of the contender of each comparison."""
    return [short(each.baseline) for each in comparisons], [short(each.contender) for each in comparisons]


def _cases(comparisons: Sequence[Comparison], *, wide: bool) -> list[Filled]:
    """Return the columns that name the cases, the parts of a step and, if `wide`, all factors that differ."""
    axes = list(dict.fromkeys(name for each in comparisons for name in each.case))
    filled: list[Filled] = []
    if any(each.name for each in comparisons):
        filled.append((Column("case"), [each.name for each in comparisons]))
    for name in axes if wide else [name for name in axes if name in AXES["kernel"]]:
        values = [each.case.get(name) for each in comparisons]
        filled.append((Column(name), [Shown(value, shortened(text(value), WIDEST)) for value in values]))
    return filled


def _notes_output(comparisons: Sequence[Comparison], most_notes: int | None) -> Iterator[Part]:
    """Yield each note once with the comparisons that it applies to, at most so many, the most frequent first."""
    about: dict[str, list[str]] = {}
    several = len({each.contender for each in comparisons}) > 1
    for each in comparisons:
        sides = short(each.contender) if several or not (each.name or _part(each)) else ""
        for note in _doubts(each):
            about.setdefault(note, []).append(" ".join(filter(None, [each.name, _part(each), sides])))
    notes = sorted(about.items(), key=lambda pair: -len(pair[1]))
    shown = notes[:most_notes]
    for note, names in shown:
        where = "all" if len(names) == len(comparisons) else some(names, 3)
        yield Text(f"  note ({where}): {note}", "    ")
    if len(shown) < len(notes):
        yield f"  and {len(notes) - len(shown)} more notes; --verbose shows them"


def speedups_output(family: Family, *, wide: bool = False, most_notes: int | None = None) -> Iterator[Part]:
    """Yield speed-ups over the baseline, a row per case and a column per contender; `?` marks undecided ones."""
    comparisons, first = family.comparisons, family.comparisons[0]
    about = f"speed-up over {short(first.baseline)} by {measure(first.metric)}"
    marks = f"? is undecided, = the same within {percent(first.delta)}"
    yield Text("; ".join(filter(None, [about, *_executions(comparisons), marks, family.shared])))
    contenders = list(dict.fromkeys(short(each.contender) for each in comparisons))
    speedups: dict[tuple[Cell, ...], dict[str, Shown]] = {}
    cases = _cases(comparisons, wide=wide)
    for each, *own in zip(comparisons, *(cells for _, cells in cases), strict=True):
        speedups.setdefault(tuple(own), {})[short(each.contender)] = _speedup(each)
    rows = [[*own, *(of.get(name, NOTHING) for name in contenders)] for own, of in speedups.items()]
    means = {short(mean.contender): _speedup(mean) for mean in family.geometric_means}
    if means and cases:
        rows.append(["geometric mean", *[None] * (len(cases) - 1), *(means.get(name, NOTHING) for name in contenders)])
    yield Table.of([*(column for column, _ in cases), *contenders], rows, cut=["kernel", "scope"])
    yield from _notes_output(comparisons, most_notes)
    yield from _left_out_output(family)


def _speedup(each: Comparison | GeometricMean) -> Shown:
    if each.ratio is None:
        return NOTHING
    mark = {"undecided": " ?", "same": " ="}.get(each.verdict, "")
    speedup = each.ratio if each.better == "higher" else 1 / each.ratio
    return Shown(speedup, f"{speedup:.3g}x{mark}")


def classical_output(tables: Sequence[Classical], *, tests: bool) -> Iterator[Part]:
    """Yield statistics of all timed blocks and, with `tests`, tests as if blocks were independent, with a warning."""
    yield "\nStep times of all timed blocks:"
    rows = []
    for each in tables:
        for name, of in ((each.baseline, each.baseline_blocks), (each.contender, each.contender_blocks)):
            times = (of.mean, of.deviation, of.minimum, of.q1, of.median, of.q3, of.maximum)
            rows.append((f"{each.name} {short(name)}".strip(), of.n, *times))
    columns = [number(f"{name}_s", "s") for name in ("mean", "deviation", "min", "q1", "median", "q3", "max")]
    yield Table.of(["blocks of", number("n"), *columns], rows, drop=["min", "max", "q1", "q3", "mean", "n"])
    if not tests:
        return
    yield Text("tests that treat blocks as independent, although blocks of one process are not:")
    for each in tables:
        test = each.rank_sum
        yield Text(
            f"{each.name} {short(each.baseline)} vs {short(each.contender)}: "
            f"rank-sum statistic {test.statistic:.3f} (p {test.p_value:.2g}), "
            f"Mann-Whitney U {test.u:.0f} (p {test.u_p_value:.2g})".strip(),
            "  ",
        )
