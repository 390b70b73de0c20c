"""Suites: the identity of the plan that a trial comes from, and how two plans differ.

Two results of one suite are comparable if its SHA-256 is the same: it covers everything that determines what is
measured, and nothing that belongs to one machine or one run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Case, Measuring
from benchmarker.api.nulls import NULL_IS_AN_ANSWER
from benchmarker.api.numbers import Count, Positive
from benchmarker.records.configurations import Value, label, text, varying

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
    if field.name not in ("params", "ranks", "measuring", *OF_THE_MACHINE) and not field.required
}


class SuiteId(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The identity of a suite or a plan file: its name, its version if it states one, and the SHA-256 of its plan."""

    name: str
    version: Annotated[str | None, NULL_IS_AN_ANSWER] = None
    sha256: Sha256

    def __str__(self) -> str:
        return f"{self.name}{f' {self.version}' if self.version else ''} ({self.sha256[:_SHOWN]})"


class TrialSuite(SuiteId, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The suite that a trial comes from, and the name that the suite gives to its case."""

    case: Annotated[str | None, NULL_IS_AN_ANSWER] = None

    @property
    def id(self) -> SuiteId:
        """The suite without the case."""
        return SuiteId(name=self.name, version=self.version, sha256=self.sha256)


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

    @property
    def id(self) -> SuiteId:
        """The suite without its cases."""
        return SuiteId(name=self.name, version=self.version, sha256=self.sha256)

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
    """Describe in what a suite differs from another: trials, design, settings of measuring, and cases."""
    found = [
        f"{name} {first} -> {second}"
        for name, first, second in (("trials", one.trials, other.trials), ("design", one.design, other.design))
        if first != second
    ]
    ours, theirs = ({_canonical(case.settings): case for case in suite.cases} for suite in (one, other))
    missing = [case for key, case in ours.items() if key not in theirs]
    additional = [case for key, case in theirs.items() if key not in ours]
    changed: Counter[str] = Counter()
    for case in list(missing):
        if same := next((each for each in additional if _work(each) == _work(case)), None):
            missing.remove(case)
            additional.remove(same)
            before, after = with_defaults(case.settings), with_defaults(same.settings)
            changed.update(f"{name} {text(before[name])} -> {text(after[name])}" for name in varying([before, after]))
    found += [f"{change} in {count} of {len(ours)} cases" for change, count in sorted(changed.items())]
    for what, cases in (("missing", missing), ("additional", additional)):
        if cases:
            more = f"; and {len(cases) - _LISTED} more" if len(cases) > _LISTED else ""
            found.append(f"{len(cases)} {what}: {'; '.join(map(str, cases[:_LISTED]))}{more}")
    return found


def _work(case: SuiteCase) -> dict[str, Value]:
    """Return what a case measures, without how."""
    return {name: value for name, value in case.settings.items() if name not in _MEASURING}
