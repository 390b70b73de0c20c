"""Check a handed-in run: everything that is missing, failed, changed or invalid, in one list.

What a run is checked against is its suite: the one that its receiver names, or the one of its name that comes with
benchmarker. docs/procurement.md states what a bidder may change.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, structs

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.bundles.manifest import Remark
from benchmarker.bundles.run_files import against_manifest, in_folder, read_run
from benchmarker.bundles.unpack import unbundle
from benchmarker.comparing import disturbances
from benchmarker.formatting import count, duration_text, part
from benchmarker.hooks import parameters, registry
from benchmarker.planning import build, plan_file, suites
from benchmarker.procurement.evidence import Evidence, Finding, Formulas
from benchmarker.records import archive, store
from benchmarker.records.consistency import SECOND_S, made_at, started_at
from benchmarker.records.factors import changes, label
from benchmarker.records.plan import Plan
from benchmarker.records.record import Blocks, Record
from benchmarker.records.suite import PlannedSuite, SuiteId, differences, with_defaults

_NAMED = ["problem", "framework"]
_UNCOMMITTED = "+changes"


class Submission(Struct, frozen=True):
    """A run as handed in: the bundle or the folder, the run, its suite as it states it, and everything found."""

    path: str
    run_id: str | None
    suite: SuiteId | None
    findings: list[Finding]


def check(result: Path, name: str | None) -> list[Submission]:
    """Check a bundle, or each run in a folder, against the suite or plan file `name`; None: the one that it states.

    Raises `UserError` if there is no such suite, no such file, or no run.
    """
    expected = expected_suite(name) if name else None
    if not result.exists():
        raise UserError(f"{result}: no such file or folder")
    if result.is_dir():
        archive.refuse(result, "logs and profiles, which are checked too")
        folders = [file.parent for file in sorted(result.rglob(store.PLAN))]
        if not folders:
            raise UserError(f"{result} contains no run: no {store.PLAN} is below it")
        return [_of_folder(folder, expected) for folder in folders]
    return [_of_bundle(result, expected)]


def expected_suite(name: str) -> PlannedSuite:
    """Return the suite with a name, or that of a plan file; raises `UserError` if there is neither."""
    description = plan_file.read(Path(name)) if Path(name).is_file() else suites.find(name).plan
    return build.suite_of(description)


def _of_folder(folder: Path, expected: PlannedSuite | None) -> Submission:
    paths = [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    records = _Records()
    run = read_run(paths, in_folder(folder), records.add)
    faults = [*run.faults, *against_manifest(folder, paths)]
    return _submission(str(folder), run.plan, faults, records, expected)


def _of_bundle(path: Path, expected: PlannedSuite | None) -> Submission:
    records = _Records()
    try:
        done = unbundle(path, None, seen=records.add)
    except UserError as error:
        return Submission(str(path), None, None, [Finding("invalid", path.name, str(error))])
    return _submission(str(path), done.plan, done.faults, records, expected)


class _Records:
    """The records of a run as they are read: judged as evidence, and kept without their measurements."""

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self.evidence = Evidence(Formulas())

    def add(self, record: Record) -> None:
        self.evidence.add(record)
        blocks = record.blocks and Blocks(1, record.blocks.duration_ns[:1], "blocks")
        self.kept.append(structs.replace(record, blocks=blocks, scopes=[], kernels=[]))


def _submission(
    path: str, plan: Plan | None, faults: Iterable[Remark], records: _Records, expected: PlannedSuite | None
) -> Submission:
    findings = [Finding("invalid", fault.path, fault.reason) for fault in faults]
    findings += records.evidence.findings()
    if plan is None:
        return Submission(path, None, None, findings)
    findings += [*_suite(plan, expected), *_left_out(plan), *_trials(plan, records.kept)]
    findings += [*_environment(records.kept), *_repeated(plan, records.kept), *_pauses(plan, records.kept)]
    return Submission(path, plan.run_id, plan.suite.id if plan.suite else None, findings)


def _suite(plan: Plan, expected: PlannedSuite | None) -> Iterator[Finding]:
    """Compare the suite of a plan with the expected one, and the cases of the plan with its suite."""
    stated = plan.suite
    if stated is None:
        yield Finding("changed", store.PLAN, "the run is not of a suite or a plan file; use `suite run` or `plan run`")
        return
    if expected is None:
        if stated.name not in suites.names():
            what = f"no suite named {stated.name!r} comes with benchmarker; name its plan file with --suite"
            yield Finding("changed", "suite", what)
        else:
            expected = expected_suite(stated.name)
    if expected and expected.sha256 != stated.sha256:
        yield Finding("changed", "suite", f"it is {stated.id} instead of {expected.id}")
    if expected:  # names are no part of the SHA-256
        yield from (Finding("changed", "suite", difference) for difference in differences(expected, stated))
    requested = {number: case.settings for case in stated.cases for number in case.case_numbers}
    for number, case in enumerate(plan.cases):
        if number not in requested:
            yield Finding("changed", _name(plan, number), "the case is not in the suite")
        else:
            for departure in _departures(requested[number], case):
                yield Finding("changed", _name(plan, number), departure)


def _departures(settings: dict[str, bool | int | float | str | None], case: Case) -> list[str]:
    """Return in what a case is not as its suite requests; what a framework decides or a machine chooses may differ."""
    values = {**structs.asdict(case), **structs.asdict(case.measuring), **case.params}
    wanted = with_defaults(settings)
    if "compile" not in settings:
        del wanted["compile"]  # some frameworks compile every step
    try:
        problem = registry.problem(case.problem)
        given = {name: value for name, value in settings.items() if name in case.params}
        wanted |= parameters.resolve(problem, given, case.device)
    except UserError as error:
        return [f"its parameters cannot be checked: {error}"]
    return changes(wanted, values, wanted)


def _name(plan: Plan, number: int) -> str:
    """Return the name of a case, as its suite or its factors give it."""
    for planned in plan.suite.cases if plan.suite else ():
        if number in planned.case_numbers:
            return str(planned)
    case = plan.cases[number]
    return label({"problem": case.problem, "framework": case.framework, **case.params}, _NAMED + list(case.params))


def _left_out(plan: Plan) -> Iterator[Finding]:
    for case in plan.suite.cases if plan.suite else ():
        if not case.case_numbers:
            yield Finding("missing", str(case), "left out of the run")
    yield from (Finding("missing", store.PLAN, f"left out: {reason}") for reason in plan.left_out)


def _trials(plan: Plan, records: Sequence[Record]) -> Iterator[Finding]:
    """Count the trials of each case that are absent, failed, without what was requested, or disturbed."""
    cases: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        cases[record.design.case_number].append(record)
    for number, case in enumerate(plan.cases):
        own, name = cases[number], _name(plan, number)
        if absent := plan.trials - len({record.trial for record in own}):
            yield Finding("missing", name, f"{part(absent, plan.trials, 'trial', 'has', 'have')} no record")
        errors = [record.error for record in own if record.error]
        for kind, times in Counter(error.kind for error in errors).items():
            message = next(error.message for error in errors if error.kind == kind)
            yield Finding("failed", name, f"{part(times, plan.trials, 'trial')} failed: {kind}: {message}")
        good = [record for record in own if record.error is None]
        for what, reasons in (
            ("energy", [_no_energy(record) for record in good if case.measuring.wants_power]),
            ("profile", [_no_profile(record) for record in good if case.measuring.profiling != "no"]),
        ):
            if lacking := [reason for reason in reasons if reason]:
                yield Finding(
                    "missing",
                    name,
                    f"{part(len(lacking), plan.trials, 'trial', 'has', 'have')} no {what}: {lacking[0]}",
                )
        if (disturbed := disturbances.count([good])).number:
            yield Finding("disturbed", name, str(disturbed))


def _no_energy(record: Record) -> str | None:
    if record.energy is None:
        return record.reasons["energy"]
    return record.reasons["energy.energy_J"] if record.energy.energy_J is None else None


def _no_profile(record: Record) -> str | None:
    return record.reasons["trace"] if record.trace is None else None


def _environment(records: Sequence[Record]) -> Iterator[Finding]:
    """The trials ran on one machine with one software, which is that of a commit."""
    for what, values in (
        ("machine", Counter(record.machine.host for record in records)),
        (
            "benchmarker",
            Counter(f"{record.software.benchmarker} {record.software.commit or ''}".strip() for record in records),
        ),
        *(
            (
                f"software of {name}",
                Counter(
                    _libraries(record)
                    for record in records
                    if record.case.framework == name and record.software.libraries
                ),
            )
            for name in dict.fromkeys(record.case.framework for record in records)
        ),
    ):
        if len(values) > 1:
            told = ", ".join(f"{value} ({count(number, 'trial')})" for value, number in values.most_common())
            yield Finding("changed", what, f"it changed within the run: {told}")
    dirty = [record.software.commit for record in records if (record.software.commit or "").endswith(_UNCOMMITTED)]
    if dirty:
        what = f"{count(len(dirty), 'trial')} ran with changes that are in no commit ({dirty[0]})"
        yield Finding("changed", "benchmarker", what)


def _libraries(record: Record) -> str:
    return " ".join(
        [record.software.python, *(f"{name} {version}" for name, version in record.software.libraries.items())]
    )


def _repeated(plan: Plan, records: Sequence[Record]) -> Iterator[Finding]:
    """Trials run in the order of the plan; one that is younger than the next was measured again."""
    known = {(record.design.case_number, record.trial): record.trial_id for record in records}
    ran = [(made_at(known[trial]), trial) for trial in plan.order if trial in known]
    for (one, (number, trial)), (two, _) in pairwise(ran):
        if one and two and one > two:
            what = f"trial {trial} was measured after the trials that follow it in the plan"
            yield Finding("changed", _name(plan, number), what)


def _pauses(plan: Plan, records: Sequence[Record]) -> Iterator[Finding]:
    """The sessions of a run that was spread over time are as far apart as its plan says."""
    sessions: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        sessions[record.design.session].append(record)
    for (_, before), (number, after) in pairwise(sorted(sessions.items())):
        ends = [start_s + record.harness.wall_s for record in before if (start_s := started_at(record)) is not None]
        starts = [start_s for record in after if (start_s := started_at(record)) is not None]
        if ends and starts and (pause_s := min(starts) - max(ends)) < plan.pause_s - SECOND_S:
            was, wanted = duration_text(max(0.0, pause_s)), duration_text(plan.pause_s)
            yield Finding("changed", store.PLAN, f"the pause before run {number + 1} was {was} instead of {wanted}")
