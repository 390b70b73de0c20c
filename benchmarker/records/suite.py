"""Suites: the identity of the plan that a trial comes from, and how two plans differ.

Two results of one suite are comparable if its SHA-256 is the same: it covers everything that determines what is
measured, and nothing that belongs to one machine or one run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Case, Measuring
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive
from benchmarker.formatting import part, some
from benchmarker.records.factors import Value, changes, label, varying

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Settings = Mapping[str, Value]
"""The settings of a case that are not at their default, by name; those of its measuring among them."""
OF_THE_MACHINE = ("device", "gpu")
"""Settings that choose hardware: they differ from machine to machine, and are not part of a suite."""
_MEASURING = Measuring.__struct_fields__
_SHOWN = 12
"""Digits of a SHA-256 in messages."""
_LISTED = 3
_DEFAULTS = {
    field.name: field.default
    for kind in (Case, Measuring)
    for field in msgspec.structs.fields(kind)
    if field.name not in ("params", "executions", "ranks", "measuring", *OF_THE_MACHINE) and not field.required
}


class SuiteId(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The identity of a suite or a plan file: its name, its version if it states one, and the SHA-256 of its plan."""

    name: str  #: its name
    version: Annotated[str | None, NULL_IS_AN_ANSWER] = None  #: its version; null if it states none
    sha256: Sha256  #: SHA-256 of its cases, trials and design

    def __str__(self) -> str:
        return f"{self.name}{f' {self.version}' if self.version else ''} ({self.sha256[:_SHOWN]})"

    @property
    def id(self) -> SuiteId:
        """The suite alone, without a case or its cases."""
        return SuiteId(name=self.name, version=self.version, sha256=self.sha256)


class TrialSuite(SuiteId, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The suite that a trial comes from, and the name that the suite gives to its case."""

    case: Annotated[str | None, NULL_IS_AN_ANSWER] = None  #: name that it gives to the case; null if none


class SuiteCase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A case of a suite: its name, its settings, and the numbers of its cases in the plan.

    There is none if the case is left out because it is not supported, and several if it runs on several devices.
    """

    name: str | None = None
    settings: dict[str, Value]
    case_numbers: list[Count]

    def __str__(self) -> str:
        if self.name:
            return f"{self.name} ({self.settings.get('framework')})"
        work = _work(self)
        return label(work, list(dict.fromkeys(["problem", "framework", *work])))


class PlannedSuite(SuiteId, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The suite of a plan, with its cases as it describes them."""

    trials: Positive
    design: str
    cases: list[SuiteCase]

    def __post_init__(self) -> None:
        """Check the SHA-256; raises ValueError."""
        if self.sha256 != fingerprint([case.settings for case in self.cases], self.trials, self.design):
            raise ValueError("the sha256 of the suite is not that of its cases, trials and design")

    def of(self, case_number: int) -> TrialSuite:
        """Return what the record of a trial of a case says about its suite."""
        names = (case.name for case in self.cases if case_number in case.case_numbers)
        return TrialSuite(name=self.name, version=self.version, sha256=self.sha256, case=next(names, None))


def make_suite(name: str, version: str | None, cases: list[SuiteCase], trials: int, design: str) -> PlannedSuite:
    """Return a suite with its SHA-256."""
    sha256 = fingerprint([case.settings for case in cases], trials, design)
    return PlannedSuite(name=name, version=version, sha256=sha256, trials=trials, design=design, cases=cases)


def of_case(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings of a case that belong to a suite: those of the machine and those at their default do not."""
    return {
        name: value
        for name, value in sorted(settings.items())
        if name not in OF_THE_MACHINE and not (name in _DEFAULTS and value in (None, _DEFAULTS[name]))
    }


def with_defaults(settings: Settings) -> dict[str, Value]:
    """Return the settings of a case with the defaults of those that are not stated, except the problem's parameters."""
    return {**_DEFAULTS, **settings}


def fingerprint(cases: Sequence[Settings], trials: int, design: str) -> str:
    """Return the SHA-256 of a suite: of its distinct cases in any order, its number of trials, and its design.

    It is that of JSON with sorted keys and without spaces: `{"cases":[...],"design":"rounds","trials":6}`.
    """
    distinct = sorted({_canonical(case) for case in cases})
    content = f'{{"cases":[{",".join(distinct)}],"design":{_canonical(design)},"trials":{trials}}}'
    return hashlib.sha256(content.encode()).hexdigest()


def _canonical(value: Settings | str) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(one: PlannedSuite, other: PlannedSuite) -> list[str]:
    """Describe in what a suite differs from another: trials, design, and cases.

    Cases of one name are the same case, so a different size under a name is a change of that case. Other cases are
    paired by their work. What is left is missing or additional.
    """
    lines = changes(_header(one), _header(other), _header(one))
    missing, additional = list(one.cases), list(other.cases)
    pairs = [
        *_pairs(missing, additional, lambda case: (str(case), _canonical(case.settings))),
        *_pairs(missing, additional, lambda case: str(case) if case.name else None),
        *_pairs(missing, additional, lambda case: _canonical(case.settings)),
        *_pairs(missing, additional, lambda case: _canonical({**_work(case), "seed": None})),
    ]
    changed: dict[str, list[SuiteCase]] = {}
    for case, same in pairs:
        before, after = with_defaults(case.settings), with_defaults(same.settings)
        for change in changes(before, after, dict.fromkeys([*before, *after])):
            changed.setdefault(change, []).append(case)
    lines += [f"{_listed(cases, len(one.cases))}: {change}" for change, cases in changed.items()]
    for what, cases in (("missing", missing), ("additional", additional)):
        if cases:
            lines.append(f"{len(cases)} {what}: {some([*map(str, cases)], _LISTED, '; ')}")
    return lines


def _header(suite: PlannedSuite) -> dict[str, Value]:
    return {"trials": suite.trials, "design": suite.design}


def _pairs(
    missing: list[SuiteCase], additional: list[SuiteCase], key: Callable[[SuiteCase], object]
) -> Iterator[tuple[SuiteCase, SuiteCase]]:
    """Take cases of the same key out of both lists, the most similar ones together; None is no key."""
    of_key: dict[object, list[SuiteCase]] = {}
    for case in additional:
        of_key.setdefault(key(case), []).append(case)
    of_key.pop(None, None)
    for case in list(missing):
        if same := of_key.get(key(case)):
            nearest = min(same, key=lambda other: len(varying([case.settings, other.settings])))
            for cases, paired in ((missing, case), (additional, nearest), (same, nearest)):
                cases.remove(paired)
            yield case, nearest


def _listed(cases: Sequence[SuiteCase], of: int) -> str:
    """Return a few cases by name, each with its frameworks, or the number of many: `GEMM 1024 (jax, torch)`."""
    names: dict[str, list[str]] = {}
    for case in cases:
        names.setdefault(case.name or str(case), []).extend([str(case.settings.get("framework"))] if case.name else [])
    if len(names) > _LISTED:
        return part(len(cases), of, "case")
    return ", ".join(f"{name} ({', '.join(several)})" if several else name for name, several in names.items())


def _work(case: SuiteCase) -> dict[str, Value]:
    """Return what a case measures, without how."""
    return {name: value for name, value in case.settings.items() if name not in _MEASURING}
