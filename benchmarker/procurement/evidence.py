"""What speaks against the records of a run: each by itself, by the formulas of its problem, and all together.

What follows from the case of a record is recomputed: the formulas of its problem need no framework.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import isclose
from typing import Any, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Divides, Problem, divided
from benchmarker.api.program import is_program
from benchmarker.formatting import part
from benchmarker.hooks import parameters, registry
from benchmarker.machine import description
from benchmarker.planning.cases import command_line
from benchmarker.records import agreement
from benchmarker.records.agreement import Copies, Sign, Span, contradictions_between, span
from benchmarker.records.consistency import contradictions
from benchmarker.records.record import Record
from benchmarker.version import DISTRIBUTION, __version__
from benchmarker.worker.correctness import TRAINING_STEPS, absolute, bounds_of, steps_of
from benchmarker.worker.draws import drawn

MOST_FLOPS, MOST_BYTES = 10**10, 10**8
"""Work of a check up to which its bound is recomputed, some seconds: the parameters are a stranger's."""
TOLERANCE = 0.01
"""Relative difference of bounds in short types: sums in another order may tip a rounding."""


class Formulas:
    """What the formulas give for each case, computed once for all of its trials."""

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Any] | str] = {}
        self._tool = (__version__, description.commit())

    @property
    def tool(self) -> str:
        """The version and the commit with whose formulas is computed."""
        version, commit = self._tool
        return f"benchmarker {version} {commit or ''}".strip()

    def differences(self, record: Record) -> list[tuple[str, str]] | str:
        """Return which fields of a record are not what the formulas give, and how, or why these cannot be computed."""
        key = msgspec.json.encode(record.case)
        if key not in self._known:
            try:
                self._known[key] = _computed(record.case)
            except UserError as error:
                self._known[key] = str(error)
            except Exception as error:  # noqa: BLE001 - a formula is a plugin's, and the parameters are a stranger's
                self._known[key] = f"{type(error).__name__}: {error}"
        computed = self._known[key]
        return computed if isinstance(computed, str) else list(_differences(record, computed))

    def made_here(self, record: Record) -> bool:
        """Whether the formulas are those with which the record was made: of the same version and commit, and ours."""
        made_by = (record.software.benchmarker, record.software.commit)
        plugin = registry.known(f"problem.{record.case.problem}")
        return made_by == self._tool and plugin is not None and plugin.distribution == DISTRIBUTION


def _computed(case: Case) -> dict[str, Any]:
    """Return the values of the fields that follow from a case; raises whatever the problem does."""
    if registry.known(f"problem.{case.problem}") is None:
        raise UserError(f"the problem {case.problem} is not installed here")
    problem = parameters.convert(registry.problem(case.problem), case.params)
    problem.refuse(case.mode)
    together = divided(problem, case.devices, case.parallel)
    exchanges = together.collectives(case.mode, case.precision) if isinstance(together, Divides) else ()
    measured, copies = (problem, case.devices) if case.independent else (together, 1)
    cost = asdict(measured.cost(case.mode, case.precision))
    types = measured.numerics(case.mode, case.precision)
    return {
        "command": command_line(case),
        **{f"cost.{name}": value and value * copies for name, value in cost.items()},
        **{f"types.{name}": getattr(types, name) for name in ("parameter", "compute", "accumulate", "lowest")},
        "bound": bound_of_case(measured, case),
        "bound by element": bound_of_case(measured, case, True) if measured.sums_products else lambda _: None,
        "scopes": dict(together.scopes(case.mode)),
        "exchanges": {exchange.op: exchange for exchange in exchanges},
    }


def bound_of_case(problem: Problem, case: Case, by_element: bool = False) -> Callable[[str], float | None]:
    """Return the function from an output's name to its bound in a check; None if it takes too much work to compute.

    It is the bound of the whole output or, `by_element`, of each of its elements.
    """
    size = problem.small()
    if not PRECISIONS[case.precision].is_short:
        bound = size.numerics(case.mode, case.precision).bound
        return lambda _: bound
    cost = size.cost(case.mode, case.precision)
    if cost.flops > MOST_FLOPS or cost.bytes > MOST_BYTES:
        return lambda _: None
    data, steps = (
        drawn(size, case.precision, case.seed, TRAINING_STEPS),
        partial(steps_of, size, case),
    )
    return bounds_of(size, case, data, steps, steps(data), steps(absolute(data)) if by_element else ()).get


def _differences(record: Record, computed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, value in computed.items():
        section, _, name = path.partition(".")
        whole = getattr(record, section) if name else None
        if whole is not None and (stored := getattr(whole, name)) != value:
            yield path, f"{path} is {stored}, but the problem's formula gives {value}"
    check = record.check
    of_element = check.componentwise if check else None
    for path, error, key in (
        ("check.bound", check, "bound"),
        ("check.componentwise.bound", of_element, "bound by element"),
    ):
        value = computed[key](error.output) if error else None
        if error and value is not None and not isclose(error.bound, value, rel_tol=TOLERANCE):
            yield path, f"{path} is {error.bound}, but the problem's formula gives {value}"
    if record.command != computed["command"]:
        yield "command", f"its command is not that of its case: {computed['command']}"
    cost = record.cost
    if cost and cost.recomputed_flops > (0 if record.case.mode == "inference" else cost.flops or 0):
        yield "cost.recomputed_flops", f"cost.recomputed_flops is {cost.recomputed_flops}, more than there can be"
    if record.trace:
        steps, formula = record.trace.steps, computed["exchanges"]
        marked = {scope.scope: scope.expected for scope in record.scopes if scope.phase == "forward"}
        for name, count in computed["scopes"].items():
            if (stored := marked.get(name)) != count * steps:
                text = f"the scope {name} is expected {stored} times, but the problem's formula gives {count * steps}"
                yield "scopes.expected", text
        for exchange in record.trace.exchanges if formula else ():
            known = formula.get(exchange.op)
            wanted = (known.count, known.bytes) if known else (0, 0)
            stored = (exchange.expected_count, exchange.expected_bytes)
            if stored != wanted:
                text = f"{exchange.op} is expected {stored[0]} times with {stored[1]} bytes in a step"
                yield "trace.exchanges", f"{text}, but the problem's formula gives {wanted[0]} with {wanted[1]}"


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
        self._signs.append((record.design.case_number, agreement.signs(record)))
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
        return [Finding("doubtful", *doubt) for doubt in agreement.doubts(self._signs)]

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
    if record.case.source or is_program(record.case.problem):
        return  # what a user's file or a program does is known only where it runs
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
