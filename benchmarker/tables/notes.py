"""Notes under a table: what its numbers are, what bold means, and what makes some cells doubtful."""

from collections.abc import Collection, Sequence

from benchmarker.api.case import Case
from benchmarker.comparing.diagnosis import conditions, doubts
from benchmarker.comparing.formatting import DOUBTS, likely, measure, percent, unit
from benchmarker.comparing.results import Rules
from benchmarker.formatting import count, part
from benchmarker.hooks import parameters, registry
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import Factors, Value, factors_of, text, varying
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL
from benchmarker.tables.figures import Judged
from benchmarker.tables.figures import Value as Measured
from benchmarker.tables.grid import Grid, Place

MOST_NAMED = 3
"""Largest number of cells that a note names."""
_PLAIN = {"out_of_memory", "timeout", "skipped"}
"""Kinds of failures that need no message."""


def what_bold_means(values: Sequence[Measured], rules: Rules) -> str:
    """Return what bold means, empty if no cells could be tested."""
    numbers = [sum(each.p_value is not None for each in value.best.comparisons) for value in values]
    if not any(numbers):
        return ""
    apart = " for each value" if sum(map(bool, numbers)) > 1 else ""
    return (
        "better than each other cell of the row that does the same work, by its verdict; "
        f"{count(sum(numbers), 'comparison')}, corrected together{apart} (Holm), "
        f"level {percent(rules.alpha)}, δ {percent(rules.delta)}"
    )


def notes_on(grid: Grid, values: Sequence[Measured], rules: Rules, *, intervals: bool) -> list[str]:
    """Return what the table's numbers are, and what makes some of them doubtful."""
    measured = [each for each in values if each.figures.spread]
    found = [_spread(measured, intervals=intervals)] if measured else []
    for each in values:
        found += _on_differences(each, rules)
    for each in measured:
        about = f"{measure(each.figures.name)}, " if len(measured) > 1 else ""
        notes: dict[str, list[str]] = {}
        for what, judged in (("best of a row", each.best), ("Δ", each.difference)):
            for note in _on_methods(judged):
                notes.setdefault(note, []).append(what)
        found += [f"{about}{' and '.join(kinds)}: {note}" for note, kinds in notes.items()]
    found += _on_others(grid)
    found += conditions(list(grid.cells.values()))
    for note, places in _on_cells(grid, values).items():
        found.append(f"{_places(grid, places)}: {note}")
    return found


def _spread(values: Sequence[Measured], *, intervals: bool) -> str:
    """Return over how many trials the medians are, and what stands after ±."""
    numbers = sorted({each.trials for value in values for each in value.figures.cells.values() if each.trials})
    if not numbers:
        return "no trial has a value"
    trials = f"{numbers[0]} to {numbers[-1]} trials" if len(numbers) > 1 else count(numbers[0], "trial")
    if not intervals:
        return f"median over {trials}"
    if numbers[-1] == 1:
        return "one trial of each case, so there is no interval"
    if any(each.figures.spread == "range" for each in values):
        few = f"fewer than {MIN_BLOCKS_FOR_INTERVAL} trials of a case allow no interval"
        return f"median over {trials} ± distance of the farthest trial; {few}"
    return f"median over {trials} ± its 95% interval (the farther end)"


def _on_differences(value: Measured, rules: Rules) -> list[str]:
    """Return what the columns of differences are."""
    named = measure(value.figures.name)
    comparisons = value.difference.comparisons
    if not value.baseline:
        return []
    if not comparisons:
        return [f"{named}: no cell has a counterpart in the baseline's column"]
    return [
        f"Δ is the difference from {value.baseline.name}: of the {named} in percent (by trials, ± its "
        f"{percent(comparisons[0].level)} interval), and of the medians; = is the same within {percent(rules.delta)}, "
        f"? is undecided; {count(len(comparisons), 'comparison')} corrected together (Holm)"
    ]


def _on_methods(judged: Judged) -> list[str]:
    """Return why one may doubt comparisons: how they were made, how many are undecided or provisional."""
    comparisons = judged.comparisons
    found = [
        f"{part(len(of), len(comparisons), 'comparison')}: {why}"
        for method, why in DOUBTS.items()
        if (of := [each for each in comparisons if each.method == method])
    ]
    if undecided := [each for each in comparisons if each.verdict == "undecided" and each.p_value is not None]:
        enough = [each.enough for each in undecided]
        most = None if None in enough else max(filter(None, enough))
        units = {unit(each.method) for each in undecided}
        remedy = likely(most, units.pop() if len(units) == 1 else "trials per side")
        found.append(f"{part(len(undecided), len(comparisons), 'comparison', 'is', 'are')} undecided; {remedy} all")
    if provisional := [each for each in comparisons if each.provisional and each.verdict != "undecided"]:
        found.append(
            f"{part(len(provisional), len(comparisons), 'comparison', 'is', 'are')} provisional: most trials of a side "
            "were disturbed, or it has one run; no cell is bold by these"
        )
    return found


def _on_others(grid: Grid) -> list[str]:
    """Return the factors of neither axis in which cells differ, although they do not follow from those of the axes."""
    axes = {*grid.row_factors, *grid.column_factors}
    following = {"execution"} if "framework" in axes and grid.executions else set()
    cases = [records[0].case for records in grid.cells.values()]
    known = [factors_of(case) for case in cases]
    derived = [_derived(case, axes) for case in cases]
    names = [
        name
        for name in varying(known)
        if name not in axes | following
        and all(name in case for case in known)
        and not all(name in of and of[name] == case[name] for of, case in zip(derived, known, strict=True))
    ]
    places = [environment_of(record) for records in grid.cells.values() for record in records]
    values = {name: _texts(known, name) for name in names}
    for name in dict.fromkeys(name for place in places for name in place if name not in axes):
        if name != "compute_threads" and len(several := _texts(places, name)) > 1:
            values[name] = several
    if not values:
        return []
    told = "; ".join(f"{name} ({', '.join(several)})" for name, several in values.items())
    return [f"cells also differ in factors that are neither in rows nor in columns: {told}"]


def _texts(several: Sequence[Factors], name: str) -> list[str]:
    """Return the known values of a factor, each once; what is not known is no difference."""
    return list(dict.fromkeys(text(each[name]) for each in several if each.get(name) is not None))


def _derived(case: Case, axes: Collection[str]) -> dict[str, Value]:
    """Return the parameters of a case that follow from those on the axes; none if the problem is not at hand."""
    try:
        problem = registry.problem(case.problem)
        given = {name: value for name, value in case.params.items() if name in axes}
        return parameters.resolve(problem, given, case.device)
    except (Exception, SystemExit):  # noqa: BLE001 - a plugin's mistake costs only what it could have explained
        return {}


def _on_cells(grid: Grid, values: Sequence[Measured]) -> dict[str, list[Place]]:
    """Return what makes cells doubtful or empty, each with its cells."""
    found: dict[str, list[Place]] = {}
    kinds: dict[str, list[Place]] = {}
    for place, records in grid.cells.items():
        for kind in doubts([records]):
            kinds.setdefault(kind, []).append(place)
        errors = [record.error for record in records if record.error]
        kinds_of = {error.kind for error in errors}
        if errors and len(errors) < len(records):
            failed = part(len(errors), len(records), "trial")
            found.setdefault(f"{failed} failed ({errors[0].message})", []).append(place)
        elif errors and (kinds_of == {"skipped"} or not kinds_of & _PLAIN):
            found.setdefault(errors[0].message, []).append(place)
    for kind, places in kinds.items():
        found[doubts([grid.cells[place] for place in places])[kind]] = places
    for value in values:
        for place, figure in value.figures.cells.items():
            if figure.reason:
                found.setdefault(f"no {measure(value.figures.name)}: {figure.reason}", []).append(place)
    return found


def _places(grid: Grid, places: Sequence[Place]) -> str:
    if len(places) == len(grid.cells):
        return "all cells"
    named = "; ".join(map(grid.name, places[:MOST_NAMED]))
    return named + (f"; {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else "")
