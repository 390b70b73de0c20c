"""The suites that the sides of a comparison come from, and in what these suites differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.records.suite import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarker.comparing.matching import Match
    from benchmarker.records.record import Record
    from benchmarker.records.suite import PlannedSuite, SuiteId


def suites_of(records: Iterable[Record]) -> list[SuiteId]:
    """Return the suites that records come from, each once."""
    return list(dict.fromkeys(record.suite.id for record in records if record.suite))


def notes(matches: Sequence[Match], known: Mapping[str, PlannedSuite]) -> list[str]:
    """Describe how the suites of baseline and contender differ; `known` has the cases of suites by SHA-256."""
    found = []
    for match in matches:
        baseline, contender = suites_of(match.baseline.records), suites_of(match.contender.records)
        if {each.sha256 for each in baseline} != {each.sha256 for each in contender}:
            found.append(_difference(baseline, contender, known))
    return list(dict.fromkeys(found))


def _difference(baseline: Sequence[SuiteId], contender: Sequence[SuiteId], known: Mapping[str, PlannedSuite]) -> str:
    one, two = (", ".join(map(str, side)) or "none" for side in (baseline, contender))
    plans = [known[side[0].sha256] for side in (baseline, contender) if len(side) == 1 and side[0].sha256 in known]
    told = "; ".join(differences(*plans)) if len(plans) == 2 else ""
    return f"suites differ: {one} → {two}" + (f": {told}" if told else "")
