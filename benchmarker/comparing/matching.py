"""Decide which configurations are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.hooks.names import Names, common_words, names, title
from benchmarker.records.configurations import (
    DEFAULTS,
    Factors,
    Value,
    configurations,
    environment_of,
    factors,
    label,
    text,
    varying,
)

if TYPE_CHECKING:
    from benchmarker.records.record import Record


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison: its name and its trials."""

    name: str
    records: tuple[Record, ...]


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


def between(results: Sequence[tuple[str, Sequence[Record]]]) -> Matching:
    """Match each later result with the first: configurations match if they agree in all factors that vary in a result.

    Thus two runs of one plan match case by case, even if they differ as a whole. Two single configurations always
    match. The sides are named after the factors in which they differ, or after the results. Raises `UserError` if
    nothing matches, or if two results contain the same trial.
    """
    trials: dict[str, str] = {}
    for name, records in results:
        for record in records:
            if trials.setdefault(record.trial_id, name) != name:
                raise UserError(
                    f"{trials[record.trial_id]} and {name} both contain the trial {record.trial_id}; leave one out"
                )
    groups = [(name, configurations(records)) for name, records in results]
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
    for name, group in others:
        for contender in group:
            key = _key(contender.factors, axes)
            baseline = baselines.get(key)
            if baseline is None:
                unmatched.append(f"{name}: {name_of[key]}")
                continue
            matched.add(key)
            differ = [name for name in varying([baseline.factors, contender.factors]) if name not in DEFAULTS]
            named = [label(each.factors, differ) if differ else "" for each in (baseline, contender)]
            names = named if len(others) == 1 and differ else [first_name, f"{name} {named[1]}".strip()]
            case = {axis: contender.factors.get(axis) for axis in axes if axis in contender.factors}
            sides = Side(names[0], baseline.records), Side(names[1], contender.records)
            matches.append(Match(case, *sides, name_of[key]))
    unmatched += [f"{first_name}: {name_of[key]}" for key in baselines if key not in matched]
    if not matches:
        raise UserError(
            f"no configuration has a counterpart (they differ in {', '.join(axes)}); name an axis with --by"
        )
    return Matching(tuple(matches), tuple(unmatched), shared=made.shared)


def by(records: Sequence[Record], axis: str, baseline: str | None, contender: str | None = None) -> Matching:
    """Match configurations that differ in one axis only: a factor of the case, or a property of its environment.

    With `contender`, only records with its value or the baseline's are kept. Raises `UserError` if no record has the
    axis, if it does not vary, or if no record has the baseline's or the contender's value.
    """
    axis = axis.replace("-", "_")
    known = {name: None for record in records for name in (*factors(record.case), *environment_of(record))}
    names = {name.replace("-", "_"): name for name in known}
    if axis not in names:
        raise UserError(f"--by={axis}: the records have no such factor; they have: {', '.join(known)}")
    axis = names[axis]
    groups: dict[tuple[tuple[str, Value], ...], dict[str, list[Record]]] = {}
    group_of = configurations(records)
    apart = (axis, "compile") if axis == "framework" else (axis,)  # some frameworks compile every step
    both = {each.factors["framework"] for each in group_of if each.factors["compile"]} & {
        each.factors["framework"] for each in group_of if not each.factors["compile"]
    }
    for each in group_of:
        rest = tuple((name, value) for name, value in each.factors.items() if name not in apart)
        for record in each.records:
            value = each.factors[axis] if axis in each.factors else environment_of(record).get(axis)
            if axis == "framework" and value in both and each.factors["compile"]:
                value = f"{value} compiled"
            groups.setdefault(rest, {}).setdefault(text(value), []).append(record)
    values = list(dict.fromkeys(value for group in groups.values() for value in group))
    if len(values) < 2:
        raise UserError(f"--by={axis}: every record has {axis}={values[0]}; there is nothing to compare")
    baseline = values[0] if baseline is None else _value("--baseline", axis, baseline, values)
    if contender is not None:
        contender = _value("--contender", axis, contender, values)
        if contender == baseline:
            raise UserError(f"baseline and contender are both {axis}={baseline}; name two of: {', '.join(values)}")
        values = [baseline, contender]
        groups = {
            rest: kept
            for rest, group in groups.items()
            if (kept := {value: group[value] for value in values if value in group})
        }
    axes = varying([dict(rest) for rest in groups])
    made = _names([[factors(side[0].case) for side in group.values()] for group in groups.values()])
    matches, unmatched = [], []
    for (rest, group), name in zip(groups.items(), made.each, strict=True):
        case = {name: value for name, value in rest if name in axes}
        others = [value for value in values if value in group and value != baseline]
        if baseline not in group or not others:
            unmatched += [f"{axis}={value} {name}".strip() for value in group]
            continue
        one = Side(f"{axis}={baseline}", tuple(group[baseline]))
        matches += [Match(case, one, Side(f"{axis}={value}", tuple(group[value])), name) for value in others]
    if not matches:
        raise UserError(f"--by={axis}: no two configurations differ in {axis} alone; name two results, or another axis")
    return Matching(tuple(matches), tuple(unmatched), shared=made.shared)


def within(records: Sequence[Record]) -> Matching:
    """Match the two configurations of one run, or those that differ in one factor only.

    Raises `UserError` if it is ambiguous what to compare.
    """
    group = configurations(records)
    differ = varying([each.factors for each in group])
    shared = _names([[each.factors for each in group]]).shared if group else ""
    if len(group) == 2:
        one, two = (Side(label(each.factors, differ), each.records) for each in group)
        return Matching((Match({}, one, two),), shared=shared)
    numbers = sorted({record.design.case_number for record in records})
    if len(group) == 1 and len(numbers) == 2:  # an A/A experiment
        one, two = (
            Side(name, tuple(record for record in group[0].records if record.design.case_number == number))
            for name, number in zip("AB", numbers, strict=True)
        )
        return Matching((Match({}, one, two),), shared=shared)
    if len(group) < 2:
        raise UserError(
            "the records are of one configuration; name another result to compare with, or an axis with --by"
        )
    if "framework" in differ:  # some frameworks compile every step
        differ = [name for name in differ if name != "compile"]
    if len(differ) > 1:
        raise UserError(f"the configurations differ in {', '.join(differ)}; name one with --by")
    return by(records, differ[0], None)


def _value(option: str, axis: str, named: str, values: Sequence[str]) -> str:
    """Return the named value, ignoring upper and lower case."""
    for value in values:
        if value.casefold() == named.casefold():
            return value
    raise UserError(f"{option}={named}: no record has {axis}={named}; there are: {', '.join(values)}")


def _names(cases: Sequence[Sequence[Factors]]) -> Names:
    """Name cases, each given by the factors of all configurations that are compared in it, by what these share."""
    apart = {name for case in cases for name in varying(case)}
    common = [{name: value for name, value in case[0].items() if name not in apart} for case in cases]
    return names(common, titles=[common_words(map(title, case)) for case in cases])


def _key(these: Factors, axes: Sequence[str]) -> tuple[Value, ...]:
    return tuple(these.get(axis) for axis in axes)
