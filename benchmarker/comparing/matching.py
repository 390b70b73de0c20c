"""Decide which configurations are compared with each other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.formatting import every, nearest
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.names import Names, common_words, names, of_programs, on_side, title
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import DEFAULTS, Factors, Value, factors_of, label, text, varying, work
from benchmarker.records.record import Record
from benchmarker.records.sides import SIDE, Side, refuse_twice

MOST_NAMED = 3
"""Largest number of differences that an error names."""


@dataclass(frozen=True, slots=True)
class Match:
    """A baseline and a contender in one case; `case` holds the factors that distinguish it from the other matches.

    `name` says them in words.
    """

    case: Factors
    baseline: Side
    contender: Side
    name: str = ""


@dataclass(frozen=True, slots=True)
class Matching:
    """The matches, the names of configurations without a counterpart, notes on the choice, and what all cases share."""

    matches: tuple[Match, ...]
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared: str = ""


def between(results: Sequence[tuple[str, Sequence[Record]]], *, lenient: bool = False) -> Matching:
    """Match each later result with the first: configurations match if they agree in all factors that vary in a result.

    Thus two runs of one plan match case by case, even if they differ as a whole, in the framework or the device. The
    sides are named after the factors in which they differ, or after the results. Raises `UserError` if nothing matches,
    if two results contain the same trial, or if two results differ in the work; with `lenient`, such results are left
    out with a note, even if nothing is left.
    """
    refuse_twice(results)
    groups = [(name, Cases.of(records)) for name, records in results]
    axes = list(dict.fromkeys(axis for _, group in groups for axis in varying([each.factors for each in group])))
    (first_name, first), *others = groups
    baselines = {_key(each.factors, axes): each for each in first}
    by_key: dict[tuple[Value, ...], list[Factors]] = {}
    for _, group in groups:
        for each in group:
            by_key.setdefault(_key(each.factors, axes), []).append(each.factors)
    made = _names(list(by_key.values()))
    name_of = dict(zip(by_key, made.each, strict=True))
    matches, unmatched = [], []
    matched = set()
    unlike: dict[str, str] = {}
    for name, group in others:
        for contender in group:
            key = _key(contender.factors, axes)
            baseline = baselines.get(key)
            if baseline is None:
                unmatched.append((name, contender))
                continue
            matched.add(key)
            if differences := _unlike(baseline.records[0].case, contender.records[0].case):
                unlike[f"{first_name} and {name} are different work: {differences}"] = _axis([baseline, contender])
                continue
            differ = [name for name in varying([baseline.factors, contender.factors]) if name not in DEFAULTS]
            named = [label(each.factors, differ) if differ else "" for each in (baseline, contender)]
            names = named if len(others) == 1 and differ else [first_name, f"{name} {named[1]}".strip()]
            case = {axis: contender.factors.get(axis) for axis in axes if axis in contender.factors}
            sides = Side(names[0], baseline.records), Side(names[1], contender.records)
            matches.append(Match(case, *sides, name_of[key]))
    if unlike and not lenient:
        what, axis = next(iter(unlike.items()))
        raise UserError(f"{what}; leave one out, or compare them nevertheless with --by={axis}")
    if not matches and not unlike:
        raise UserError(f"no configuration has a counterpart (they differ in {every(axes)}); name an axis with --by")
    left = [each for key, each in baselines.items() if key not in matched]
    return Matching(
        tuple(matches),
        (
            *(
                f"{name}: {name_of[_key(each.factors, axes)]}{_nearest(each, first_name, left, axes)}"
                for name, each in unmatched
            ),
            *(f"{first_name}: {name_of[_key(each.factors, axes)]}" for each in left),
        ),
        tuple(f"not compared: {what}" for what in unlike),
        made.shared,
    )


def _unlike(one: Case, two: Case) -> str | None:
    """Return how the work of two cases differs, or None; problems that differ have different parameters anyway."""
    first, second = work(one), work(two)
    names = ["problem"] if one.problem != two.problem else varying([first, second])
    shown = [f"{name} {text(first.get(name))} and {text(second.get(name))}" for name in names[:MOST_NAMED]]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*shown, *more]) or None


def _axis(group: Sequence[Configuration]) -> str:
    """Return the value of --by that names all factors in which these configurations differ."""
    names = varying([each.factors for each in group])
    following = _following(names, [each.records[0].case for each in group])
    return ",".join(name for name in names if name not in following)


def _following(axes: Sequence[str], cases: Sequence[Case]) -> set[str]:
    """Return the factors that differ because an axis does.

    Each problem has its own parameters, and each framework its own way to run a step.
    """
    parameters = {name for case in cases for name in case.params} if "problem" in axes else set()
    return parameters | ({"execution"} if "framework" in axes else set())


def _nearest(one: Configuration, name: str, others: Sequence[Configuration], axes: Sequence[str]) -> str:
    """Return in what the most similar of the configurations without a counterpart differs, as text."""
    differences = [(varying([one.factors, each.factors]), each) for each in others]
    if not differences:
        return ""
    names, nearest = min(differences, key=lambda pair: len(pair[0]))
    return f" (nearest in {name}: {label(nearest.factors, [each for each in axes if each in names])})"


def by(
    records: Sequence[Record],
    axis: str,
    baseline: str | None,
    contender: str | None = None,
    side_of: Mapping[str, str] = MappingProxyType({}),
) -> Matching:
    """Match configurations that differ in one axis only: a factor of the case, or a property of its environment.

    Several axes, separated by commas, are varied together; a value is then a list too. With `contender`, only records
    with its value or the baseline's are kept. `side_of` names the side of each trial, by its id, if they come from
    several: each side is then compared within itself, unless every side has one value of the axis. Raises `UserError`
    if no record has the axis, if it does not vary, if no record has the baseline's or the contender's value, or if a
    problem to compare with another has several cases.
    """
    axes = axes_of(records, axis)
    axis = ",".join(axes)
    group_of = Cases.of(records)
    apart = {*axes, *_following(axes, [record.case for record in records])}
    groups: dict[tuple[tuple[str, Value], ...], dict[tuple[str, ...], list[Record]]] = {}
    valued = [
        (each, record, value_of(axes, {**environment_of(record), **each.factors}))
        for each in group_of
        for record in each.records
    ]
    values_on: dict[str | None, set[tuple[str, ...]]] = {}
    for _, record, value in valued:
        values_on.setdefault(side_of.get(record.trial_id), set()).add(value)
    apart_by_side = any(len(several) > 1 for several in values_on.values())
    for each, record, value in valued:
        own = {SIDE: side_of[record.trial_id]} if apart_by_side and record.trial_id in side_of else {}
        rest = tuple((name, value) for name, value in {**own, **each.factors}.items() if name not in apart)
        groups.setdefault(rest, {}).setdefault(value, []).append(record)
    values = list(dict.fromkeys(value for group in groups.values() for value in group))
    if len(values) < 2:
        raise UserError(f"--by={axis}: every record has {side_name(axes, values[0])}; there is nothing to compare")
    first = values[0] if baseline is None else _value("--baseline", axes, baseline, values)
    if contender is not None:
        second = _value("--contender", axes, contender, values)
        if second == first:
            raise UserError(f"baseline and contender are both {side_name(axes, first)}; name two of: {_listed(values)}")
        values = [first, second]
        groups = {
            rest: kept
            for rest, group in groups.items()
            if (kept := {value: group[value] for value in values if value in group})
        }
    varied = varying([dict(rest) for rest in groups])
    made = _names([[factors_of(side[0].case) for side in group.values()] for group in groups.values()])
    matches, unmatched = [], []
    for (rest, group), own_name in zip(groups.items(), made.each, strict=True):
        name = on_side(dict(rest), own_name)
        case = {factor: value for factor, value in rest if factor in varied}
        others = [value for value in values if value in group and value != first]
        if first not in group or not others:
            unmatched += [f"{side_name(axes, value)} {name}".strip() for value in group]
            continue
        for value in (first, *others):
            if several := varying([work(record.case) for record in group[value]]):
                raise UserError(
                    f"--by={axis}: {side_name(axes, value)} has several cases, which differ in {', '.join(several)}; "
                    "name results with one case of each"
                )
        one = Side(side_name(axes, first), tuple(group[first]))
        matches += [Match(case, one, Side(side_name(axes, value), tuple(group[value])), name) for value in others]
    if not matches:
        raise UserError(f"--by={axis}: no two configurations differ in {axis} alone; name two results, or another axis")
    return Matching(tuple(matches), tuple(unmatched), shared=made.shared)


def axes_of(records: Sequence[Record], axis: str) -> list[str]:
    """Return the axes that --by names, as records spell them; of frameworks, also how they run steps if that differs.

    Raises `UserError` if no record has one of them.
    """
    known = {name: None for record in records for name in (*factors_of(record.case), *environment_of(record))}
    names = {name.replace("-", "_"): name for name in known}
    asked = [name.strip().replace("-", "_") for name in axis.split(",")]
    if unknown := [name for name in asked if name not in names]:
        raise UserError(f"--by={unknown[0]}: the records have no such factor; {nearest(unknown[0], names)}")
    axes = dict.fromkeys(names[name] for name in asked)
    unlike = "framework" in axes and len({record.case.execution for record in records}) > 1
    return list(axes | {"execution": None} if unlike else axes)


def value_of(axes: Sequence[str], these: Factors) -> tuple[str, ...]:
    """Return the value of each axis as text."""
    return tuple(text(these.get(name)) for name in axes)


def side_name(axes: Sequence[str], values: Sequence[str]) -> str:
    """Return the name of the side that has these values of the axes: `framework=jax precision=fp32`."""
    return " ".join(f"{axis}={value}" for axis, value in zip(axes, values, strict=True))


def _listed(values: Iterable[Sequence[str]]) -> str:
    return ", ".join(",".join(value) for value in values)


def within(records: Sequence[Record]) -> Matching:
    """Match the two configurations of one run, or those that differ in one factor only, or the pairs of an `ab`.

    The sides of an `ab` may differ in anything, because each was named. Otherwise a difference in the problem or the
    mode, or in the work and something else, must be named by an axis. Raises `UserError` if it is, or if it is
    ambiguous what to compare.
    """
    group = Cases.of(records)
    differ = varying([each.factors for each in group])
    shared = _names([[each.factors for each in group]]).shared if group else ""
    numbers = sorted({record.design.case_number for record in records})
    if len(group) == 1 and len(numbers) == 2:  # an A/A experiment
        one, two = (
            Side(name, tuple(record for record in group[0].records if record.design.case_number == number))
            for name, number in zip("AB", numbers, strict=True)
        )
        return Matching((Match({}, one, two),), shared=shared)
    named = all(record.design.looks for record in records)
    if named and len(numbers) > 2 and (made := _pairs(records)):
        return made
    if len(group) < 2:
        raise UserError(
            "the records are of one configuration; name another result to compare with, or an axis with --by"
        )
    axes = _axis(group).split(",")
    unlike = set(axes) & set(work(records[0].case))
    if len(group) == 2 and (named or not unlike or (len(axes) == 1 and not unlike & {"problem", "mode"})):
        one, two = (Side(label(each.factors, differ), each.records) for each in group)
        return Matching((Match({}, one, two),), shared=shared)
    if len(group) == 2 or axes in (["problem"], ["mode"]):
        raise UserError(
            f"the configurations do different work: they differ in {', '.join(axes)}; "
            f"compare them nevertheless with --by={','.join(axes)}"
        )
    if len(axes) > 1:
        raise UserError(f"the configurations differ in {every(axes)}; name one with --by")
    return by(records, axes[0], None)


def _pairs(records: Sequence[Record]) -> Matching | None:
    """Match cases 0 and 1, 2 and 3, and so on, which an `ab` of several functions measures; None if these are none."""
    by_number: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.design.case_number):
        by_number.setdefault(record.design.case_number, []).append(record)
    cases = [Cases.of(of_number) for of_number in by_number.values()]
    if [*by_number] != [*range(len(by_number))] or len(cases) % 2 or any(len(group) > 1 for group in cases):
        return None
    pairs = [(one[0], two[0]) for (one, two) in zip(cases[::2], cases[1::2], strict=True)]
    made = _names([[each.factors for each in pair] for pair in pairs])
    axes = varying([one.factors for one, _ in pairs])
    matches = []
    for (one, two), name in zip(pairs, made.each, strict=True):
        differ = varying([one.factors, two.factors])
        names = [label(each.factors, differ) if differ else letter for letter, each in (("A", one), ("B", two))]
        case = {axis: one.factors[axis] for axis in axes}
        matches.append(Match(case, Side(names[0], one.records), Side(names[1], two.records), name))
    return Matching(tuple(matches), shared=made.shared)


def _value(option: str, axes: Sequence[str], named: str, values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the named value, ignoring upper and lower case; how steps run, the last axis, need not be named."""
    for end in (None, *([-1] if axes[-1] == "execution" else [])):
        fitting = [value for value in values if ",".join(value[:end]).casefold() == named.casefold()]
        if len(fitting) == 1:
            return fitting[0]
    raise UserError(f"{option}={named}: no record has {','.join(axes)}={named}; there are: {_listed(values)}")


def _names(cases: Sequence[Sequence[Factors]]) -> Names:
    """Name cases, each given by the factors of all configurations that are compared in it, by what these share."""
    apart = {name for case in cases for name in varying(case)}
    common = [{name: value for name, value in case[0].items() if name not in apart} for case in cases]
    titles = [common_words(map(title, case)) for case in cases]
    return names(common, titles=titles, programs=of_programs(chain.from_iterable(cases)))


def _key(these: Factors, axes: Sequence[str]) -> tuple[Value, ...]:
    return tuple(these.get(axis) for axis in axes)
