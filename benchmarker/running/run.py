"""Running a plan: one process after the other; the records of each are stored before the next begins."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation
from benchmarker.files import atomic
from benchmarker.files.locks import scratch
from benchmarker.formatting import count, duration_text, part
from benchmarker.hooks.launchers import check_nodes
from benchmarker.planning import estimate
from benchmarker.planning.estimate import TimeLeft
from benchmarker.power.samplers import Sampled
from benchmarker.records import store
from benchmarker.records.consistency import started_at
from benchmarker.records.factors import factors_of, varying
from benchmarker.records.plan import Plan, PlannedTrial, make_plan
from benchmarker.records.record import Design, Record, location
from benchmarker.running.context import Context, Listener
from benchmarker.running.profile_pass import add_profile, without_profile
from benchmarker.running.record_builder import Process
from benchmarker.running.trial import PreemptedError, log_paths, run_process, skip

Enough = Callable[[Sequence[Record]], bool]
"""Called after each complete round with all records so far; returns whether the run can stop."""


def never(records: Sequence[Record]) -> bool:
    """Run the whole plan."""
    return False


def execute(
    folder: store.RunFolder,
    listener: Listener,
    allocation: Allocation | None = None,
    enough: Enough = never,
    then_s: Callable[[Iterable[Record]], float] | None = None,
    packages: Sequence[str] = (),
) -> list[Record]:
    """Run the trials of a plan that have no record yet, in its order; returns all records, by case and trial.

    The trials of a round share the host and the `allocation`: an unfinished round that was begun elsewhere is repeated
    whole. `then_s` returns, from the records so far, how many seconds what follows the plan should take. `packages` are
    those of `Context`. Raises
    `UserError` if the folder cannot be written any more, or if the launcher has started the job again. An interrupt
    loses only the process that is running.
    """
    plan = folder.plan
    check_nodes(max(case.nodes for case in plan.cases), allocation)
    finished = store.done(folder.path, plan)
    if finished:
        failed = sum(record.error is not None for record in finished.values())
        stored = part(len(finished), len(plan.order), "trial", "has", "have")
        listener.say(f"resuming {folder.path}: {stored} a record ({failed} failed)")
    _set_cut_rounds_aside(folder, finished, allocation, listener)
    left = TimeLeft(plan)
    left.learn(finished.values())
    ran = 0
    processes = plan.processes()
    differ = varying([factors_of(case) for case in plan.cases])
    with closing(Context(folder, listener, allocation, packages)) as context:
        for number, trials in enumerate(processes, 1):
            if ran and ran % len(plan.cases) == 0 and enough(_records(plan, ran, finished)):
                break
            if any(trial not in finished for trial in trials):
                if folder.is_superseded():
                    raise UserError(f"the launcher has started {folder.path} again; the run goes on there")
                _set_halves_aside(folder, trials, finished, listener)
                _pause(folder, trials[0][1], finished, listener)
                process = make_process(plan, trials, slot=ran % len(plan.cases), allocation=allocation)
                left_s = left.seconds(ran)
                if then_s and left_s is not None:
                    left_s += then_s(finished.values())
                listener.begin(f"[{number}/{len(processes)}] {process.title(differ)}", process.cases[0], left_s)
                if reason := _ran_out_before(process, finished):
                    records = skip(process, reason)
                else:
                    records = _measure(context, process, len(finished))
                records = [_save(context, record) for record in records]
                finished.update(zip(trials, records, strict=True))
                left.learn(records)
                listener.end(records)
            ran += len(trials)
    return _records(plan, ran, finished)


def _pause(folder: store.RunFolder, number: int, finished: Mapping[PlannedTrial, Record], listener: Listener) -> None:
    """Wait for the session of a round, if it is time for a pause."""
    try:
        wait_before(number, folder.plan, finished.values(), listener.say)
    except KeyboardInterrupt:
        _say_interrupted(folder, len(finished), listener.say)
        raise


def _say_interrupted(folder: store.RunFolder, stored: int, say: Callable[[str], None]) -> None:
    again = "continue with the same command and --resume"
    if folder.attempt is not None:
        again = f"`submit {folder.path}` continues, unless the launcher does"
    say(f"interrupted: {part(stored, len(folder.plan.order), 'trial', 'is', 'are')} stored in {folder.path}; {again}")


def _set_cut_rounds_aside(
    folder: store.RunFolder,
    finished: dict[PlannedTrial, Record],
    allocation: Allocation | None,
    listener: Listener,
) -> None:
    """Set the records of rounds aside of which a trial was preempted, or the rest would be measured elsewhere."""
    here = location(gethostname(), allocation)
    rounds: dict[int, list[PlannedTrial]] = {}
    for index, number in finished:
        rounds.setdefault(number, []).append((index, number))
    for number, trials in rounds.items():
        records = [finished[trial] for trial in trials]
        is_elsewhere = any(location(record.machine.host, record.allocation) != here for record in records)
        if any(map(store.is_cut, records)) or (is_elsewhere and len(trials) < len(folder.plan.cases)):
            for trial in trials:
                folder.set_aside(finished.pop(trial))
            aside = count(len(trials), "record")
            listener.say(
                f"round {number} was interrupted on another host or in another job: {aside} set aside, the round is "
                "repeated"
            )


def _set_halves_aside(
    folder: store.RunFolder, trials: Sequence[PlannedTrial], finished: dict[PlannedTrial, Record], listener: Listener
) -> None:
    """Set the record of a duet aside that was interrupted before its other record was written."""
    for trial in trials:
        if half := finished.pop(trial, None):
            folder.set_aside(half)
            listener.say(
                f"trial {half.trial_id} of a duet lacks its partner: its record is set aside, both are repeated"
            )


def _records(plan: Plan, ran: int, finished: dict[PlannedTrial, Record]) -> list[Record]:
    return [finished[trial] for trial in sorted(plan.order[:ran])]


def _measure(context: Context, process: Process, stored: int) -> list[Record]:
    """Measure the cases of a process, and return their records; what the meters read is stored in the same folder."""
    folder, say = context.folder, context.listener.say
    try:
        result = run_process(context, process)
    except PreemptedError as preempted:
        for record in preempted.records:
            folder.save(record)
        what = preempted.lost_node or "preempted"
        say(f"{what}: {part(stored, len(folder.plan.order), 'trial', 'is', 'are')} stored in {folder.path}")
        raise
    except KeyboardInterrupt:
        for log in log_paths(folder, process):
            log.unlink(missing_ok=True)
        _say_interrupted(folder, stored, say)
        raise
    except OSError as error:
        raise UserError(
            f"{error.filename or 'the system'}: {error.strerror}; fix this, then continue with --resume"
        ) from error
    _save_telemetry(folder.path / f"{process.trial_ids[0]}{store.TELEMETRY}", result.sampled, say)
    return result.records


def _save_telemetry(path: Path, sampled: Sequence[Sequence[Sampled]], say: Callable[[str], None]) -> None:
    """Write everything that the meters of all nodes read, if anything; an error loses only this file."""
    if any(meter.samples for node in sampled for meter in node):
        from benchmarker.power import telemetry  # Arrow takes longest of all to import

        try:
            atomic.write(path, telemetry.encode(*sampled))
        except OSError as error:
            say(f"the trial has no time series: cannot write {path}: {error.strerror}")


def _save(context: Context, record: Record) -> Record:
    """Store a record, with its profile if one was requested; an interrupt loses only the profile."""
    say, measuring = context.listener.say, record.case.measuring
    if measuring.profiling != "no" and record.error is None and not record.case.is_emulated:
        try:
            record = add_profile(context, record)
        except KeyboardInterrupt:
            path = context.folder.save(without_profile(record, "the profile was interrupted"))
            say(f"interrupted: the trial is stored without its profile: {path}")
            raise
        if record.trace is None:
            say(f"trial {record.trial_id} has no profile: {record.reasons['trace']}")
        for missing in record.trace.missing if record.trace else ():
            say(f"the profile of trial {record.trial_id} is incomplete: {missing}")
    if measuring.wants_power and any(report.channels for report in record.meters):
        for name in ("energy", "energy.energy_J"):
            if record.error is None and name in record.reasons:
                say(f"trial {record.trial_id} has no energy: {record.reasons[name]}")
    context.folder.save(record)
    return record


def make_process(
    plan: Plan, trials: Sequence[PlannedTrial], slot: int, allocation: Allocation | None = None
) -> Process:
    """The process that measures one trial of a plan, or the two of a duet."""
    ids = [store.new_id() for _ in trials]
    partners = reversed(ids) if plan.design == "duet" else [None]
    return Process(
        run_id=plan.run_id,
        trial_ids=tuple(ids),
        cases=tuple(plan.cases[index] for index, _ in trials),
        trial=trials[0][1],
        designs=tuple(
            Design(
                kind=plan.design,
                case_number=index,
                slot=slot,
                session=plan.session_of(trials[0][1]),
                looks=plan.looks,
                partner=partner,
            )
            for (index, _), partner in zip(trials, partners, strict=True)
        ),
        suites=tuple(plan.suite_of(index) for index, _ in trials),
        seed=plan.seed + trials[0][1],
        allocation=allocation,
    )


def _ran_out_before(process: Process, finished: Mapping[PlannedTrial, Record]) -> str | None:
    """Why memory would run out: it did for one of the cases or for a smaller one. None if no record shows that.

    A case is smaller if it differs only in numeric parameters, none of which is larger.
    """
    for record in finished.values():
        if record.error is None or record.error.kind != "out_of_memory":
            continue
        small = record.case
        for case in process.cases:
            if msgspec.structs.replace(small, params=case.params) == case and _no_larger(small.params, case.params):
                larger = [name for name, value in case.params.items() if value != small.params[name]]
                at = ", ".join(f"{name}={small.params[name]}" for name in larger) or "the same parameters"
                return f"memory ran out at {at} (trial {record.trial_id}); run this case alone to try it anyway"
    return None


def _no_larger(smaller: Mapping[str, Any], larger: Mapping[str, Any]) -> bool:
    """Whether each parameter is the same, or a smaller number in `smaller`."""
    return all(
        value == larger[name] or (type(value) in (int, float) and value < larger[name])
        for name, value in smaller.items()
    )


def wait_before(number: int, plan: Plan, finished: Collection[Record], say: Callable[[str], None]) -> None:
    """Wait until the pause after the session before round `number` is over; not amid a session, nor before the first.

    Time that has passed since, because the run was interrupted, is part of the pause.
    """
    session = plan.session_of(number)
    if any(record.design.session == session for record in finished):
        return
    ends = [start_s + record.harness.wall_s for record in finished if (start_s := started_at(record)) is not None]
    left_s = max(ends, default=0.0) + plan.pause_s - time.time()
    if session == 0 or left_s <= 0:
        return
    begin = datetime.fromtimestamp(time.time() + left_s).astimezone()
    say(
        f"run {session + 1} of {plan.sessions} begins at {begin:%H:%M:%S}, after a pause of "
        f"{duration_text(plan.pause_s)}"
    )
    time.sleep(left_s)


def probe_cases(plan: Plan, indices: Sequence[int], listener: Listener) -> dict[int, Record]:
    """A short trial of each case with one of these indices, by index; nothing is stored.

    Cases of several nodes have none: nothing is written where other nodes would see it.
    """
    indices = [index for index in indices if plan.cases[index].nodes == 1]
    if not indices:
        return {}
    probes = make_plan([estimate.probe(plan.cases[index]) for index in indices], 1)
    records = {}
    with scratch() as path:
        context = Context(store.RunFolder(path, probes), listener)
        for number, (index, case) in enumerate(zip(indices, probes.cases, strict=True)):
            listener.begin(f"[{number + 1}/{len(indices)}] probe of {case.framework} {case.problem}", case, None)
            result = run_process(context, make_process(probes, [(number, 0)], slot=number))
            listener.end(result.records)
            (records[index],) = result.records
    return records
