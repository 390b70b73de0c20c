"""What speaks against the records of a run: each by itself, by the formulas of its problem, and all together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from benchmarker.formatting import part
from benchmarker.procurement.recomputed import Formulas
from benchmarker.records import rates
from benchmarker.records.consistency import contradictions
from benchmarker.records.copies import Copies
from benchmarker.records.spans import Span, contradictions_between, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarker.records.rates import Sign
    from benchmarker.records.record import Record

Kind = Literal["invalid", "doubtful", "changed", "missing", "failed", "disturbed"]


class Finding(Struct, frozen=True):
    """One thing that is not as it should be: its kind, the file, the case or the trials, and what is the matter."""

    kind: Kind
    of: str
    what: str


class Objection(Struct, frozen=True):
    """What speaks against one trial: the kind of finding, the check that found it, the trial, and what it found."""

    kind: Kind
    check: str
    trial_id: str
    text: str


class Evidence:
    """The records of one run as they are read; what is judged together is kept, the rest is judged at once."""

    def __init__(self, formulas: Formulas) -> None:
        self._formulas = formulas
        self._trials: dict[str, None] = {}
        self._single: list[Objection] = []
        self._spans: list[Span] = []
        self._signs: list[tuple[int, list[Sign]]] = []
        self._copies = Copies()

    def add(self, record: Record) -> None:
        """Judge a record by itself, and keep what all of them are judged by."""
        self._trials[record.trial_id] = None
        self._single += _objections(record, self._formulas)
        if ran := span(record):
            self._spans.append(ran)
        self._signs.append((record.design.case_number, rates.signs(record)))
        self._copies.add(record)

    def objections(self) -> list[Objection]:
        """Return what speaks against single trials."""
        overlaps = contradictions_between(self._spans)
        return [
            *self._single,
            *(Objection("invalid", "trials overlap in time", trial, text) for trial, text in overlaps),
            *(Objection("invalid", "blocks were copied", *copied) for copied in self._copies.found().items()),
        ]

    def doubts(self) -> list[Finding]:
        """Return what speaks against the run, although each of its trials could have been disturbed."""
        return [Finding("doubtful", *doubt) for doubt in rates.doubts(self._signs)]

    def findings(self) -> list[Finding]:
        """Return everything that speaks against the run; what a check found in several trials is one finding."""
        return [*together(self.objections(), len(self._trials)), *self.doubts()]


def of_runs(records: Iterable[Record]) -> dict[str, Evidence]:
    """Return the evidence of each run among records, by its id."""
    formulas, runs = Formulas(), dict[str, Evidence]()
    for record in records:
        runs.setdefault(record.run_id, Evidence(formulas)).add(record)
    return runs


def together(objections: Sequence[Objection], trials: int) -> list[Finding]:
    """Return a finding for each check: of the only trial that it objects to, or of the share of so many trials."""
    by_check: dict[tuple[Kind, str], dict[str, str]] = defaultdict(dict)
    for objection in objections:
        by_check[objection.kind, objection.check].setdefault(objection.trial_id, objection.text)
    findings = []
    for (kind, check), texts in by_check.items():
        trial, text = next(iter(texts.items()))
        if len(texts) == 1:
            findings.append(Finding(kind, f"{trial}.json", text))
        else:
            share = part(len(texts), trials, "trial")
            example = "" if text == check else f", for instance {trial}: {text}"
            findings.append(Finding(kind, share, check + example))
    return findings


def _objections(record: Record, formulas: Formulas) -> Iterator[Objection]:
    for check, text in contradictions(record):
        yield Objection("invalid", check, record.trial_id, text)
    differences = formulas.differences(record)
    if isinstance(differences, str):
        check = f"fields cannot be recomputed: {differences}"
        yield Objection("changed", check, record.trial_id, check)
        return
    kind: Kind = "invalid" if formulas.made_here(record) else "changed"
    here = "" if kind == "invalid" else f" in {formulas.tool}"
    for path, text in differences:
        if kind == "invalid" or path != "command":  # other versions may spell options otherwise
            yield Objection(kind, f"{path} differs from its formula", record.trial_id, text + here)
