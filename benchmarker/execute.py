"""Running a plan: one process after the other, its records stored before the next begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from benchmarker import gpus, store
from benchmarker.errors import UserError
from benchmarker.estimate import TimeLeft
from benchmarker.power import sampling
from benchmarker.profiling import add_profile, without_profile
from benchmarker.record import Design, Record
from benchmarker.trial import Process, run_process, skip

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.api import Case
    from benchmarker.conversation import Environment, Event
    from benchmarker.plan import Place, Plan
    from benchmarker.power.sampler import Found
    from benchmarker.power.sampling import Sampled


class Listener(Protocol):
    """Whoever is told how a run goes; `again` ends the sentence that says that it was interrupted."""

    again: str

    def say(self, text: str) -> None:
        """Something about the run as a whole."""

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """A process begins; `left_s` is what the whole plan should still take, where that can be told."""

    def hear(self, event: Event) -> None:
        """A worker has sent an event."""

    def end(self, records: Sequence[Record]) -> None:
        """A process has ended, and its records are stored."""


Enough = Callable[[Sequence[Record]], bool]
"""Asked after each whole block, with all records so far: is there nothing more to run?"""


def never(records: Sequence[Record]) -> bool:
    """Run all of the plan."""
    return False


def execute(folder: store.RunFolder, listener: Listener, enough: Enough = never) -> list[Record]:
    """Run the trials of a plan that have no record yet, in its order; returns the records of all, by case and trial.

    Raises `UserError` where the folder cannot be written any more; an interrupt loses the process in flight alone.
    """
    plan = folder.plan
    finished = store.done(folder.path, plan)
    if finished:
        failed = sum(record.error is not None for record in finished.values())
        listener.say(
            f"resuming {folder.path}: {len(finished)} of {len(plan.order)} trials have a record ({failed} failed)"
        )
    left = TimeLeft(plan)
    left.learn(finished.values())
    environment = cache(lambda gpu: gpus.environment(gpu, os.environ))
    find = cache(lambda power, device, gpu, asked: _find_meters(power, device, environment(gpu), asked, listener))
    ran = 0
    processes = plan.processes()
    for number, places in enumerate(processes, 1):
        if ran and ran % len(plan.cases) == 0 and enough(_records(plan, ran, finished)):
            break
        if any(place not in finished for place in places):
            _discard_halves(folder, places, finished, listener)
            process = make_process(plan, places, slot=ran % len(plan.cases))
            names = " and ".join(dict.fromkeys(f"{case.framework} {case.problem}" for case in process.cases))
            title = f"[{number}/{len(processes)}] {names}, trial {process.trial}"
            case = process.cases[0]
            measuring = case.measuring
            alone = len(process.cases) == 1
            meters = find(measuring.power, case.device, case.gpu, measuring.wants_power) if alone else {}
            listener.begin(title, case, left.seconds(ran))
            if reason := _ran_out_before(process, finished):
                records = skip(process, reason)
            else:
                records = _measure(folder, process, environment(case.gpu), meters, listener, len(finished))
            for place, record in zip(places, records, strict=True):
                finished[place] = _stored(folder, record, environment, listener)
            left.learn(records)
            listener.end(records)
        ran += len(places)
    return _records(plan, ran, finished)


def _discard_halves(
    folder: store.RunFolder, places: Sequence[Place], finished: dict[Place, Record], listener: Listener
) -> None:
    """Take away the record of a duet that was cut off before its other record was written."""
    for place in places:
        if half := finished.pop(place, None):
            folder.discard(half)
            listener.say(f"trial {half.trial_id} of a duet lacks its partner: taken away, and both are repeated")


def _records(plan: Plan, ran: int, finished: dict[Place, Record]) -> list[Record]:
    return [finished[place] for place in sorted(plan.order[:ran])]


def _find_meters(
    power: str, device: str, environment: Environment, asked: bool, listener: Listener
) -> Mapping[str, Found]:
    """What the meters read here; where power was asked for, it is told which are read and why one named is not."""
    found = sampling.find(sampling.meters(power), device, environment)
    silent = {name: "; ".join(lack.text for lack in each.lacks) for name, each in found.items() if not each.channels}
    for name, why in silent.items():
        if (asked and power != sampling.AUTO) or any(lack.reason == "stalled" for lack in found[name].lacks):
            listener.say(f"no power from {name}: {why}")
    if asked and power == sampling.AUTO:
        reading = ", ".join(name for name in found if name not in silent) or "no meter"
        rest = f"; not {', '.join(silent)}: `benchmarker power` says why" if silent else ""
        listener.say(f"power: reading {reading}{rest}")
    return found


def _measure(
    folder: store.RunFolder,
    process: Process,
    environment: Environment,
    meters: Mapping[str, Found],
    listener: Listener,
    stored: int,
) -> list[Record]:
    log = folder.log_path(process.trial_ids[0])
    try:
        outcome = run_process(process, environment, meters, log, listener.hear)
    except KeyboardInterrupt:
        log.unlink(missing_ok=True)
        listener.say(
            f"interrupted: {stored} of {len(folder.plan.order)} trials are stored in {folder.path}{listener.again}"
        )
        raise
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename}: {error.strerror}; mend that, then go on with --resume"
        ) from error
    _keep(folder.telemetry_path(process.trial_ids[0]), outcome.sampled, listener)
    return outcome.records


def _keep(path: Path, sampled: Sequence[Sampled], listener: Listener) -> None:
    """Write all that the meters read, where they read anything; what stands in the way costs this file alone."""
    if any(each.samples for each in sampled):
        from benchmarker.power import telemetry  # Arrow takes longer to import than all else

        try:
            store.write(path, telemetry.encode(sampled))
        except OSError as error:
            listener.say(f"the trial is without its time line: cannot write {path}: {error.strerror}")


def _stored(
    folder: store.RunFolder, record: Record, environment: Callable[[int | None], Environment], listener: Listener
) -> Record:
    """Store a record, with its profile where one was asked for; an interrupt costs the profile alone."""
    if record.case.measuring.profiling != "no" and record.error is None:
        try:
            record = add_profile(record, folder, environment(record.case.gpu), listener.hear)
        except KeyboardInterrupt:
            path = folder.save(without_profile(record, "the profile was interrupted"))
            listener.say(f"interrupted: the trial is stored without its profile: {path}")
            raise
        if record.trace is None:
            listener.say(f"trial {record.trial_id} has no profile: {record.reasons['trace']}")
        for each in record.trace.missing if record.trace else ():
            listener.say(f"the profile of trial {record.trial_id} is incomplete: {each}")
    if record.case.measuring.wants_power and any(report.channels for report in record.meters):
        for name in ("energy", "energy.energy_J"):
            if record.error is None and name in record.reasons:
                listener.say(f"trial {record.trial_id} has no energy: {record.reasons[name]}")
    folder.save(record)
    return record


def make_process(plan: Plan, places: Sequence[Place], slot: int) -> Process:
    """The process that measures one trial of a plan, or the two of a duet."""
    ids = [store.new_id() for _ in places]
    trial = places[0][1]
    partners = reversed(ids) if plan.design == "duet" else [None]
    return Process(
        run_id=plan.run_id,
        trial_ids=tuple(ids),
        cases=tuple(plan.cases[index] for index, _ in places),
        trial=trial,
        designs=tuple(
            Design(kind=plan.design, case_number=index, slot=slot, looks=plan.looks, partner=partner)
            for (index, _), partner in zip(places, partners, strict=True)
        ),
        seed=plan.seed + trial,
    )


def _ran_out_before(process: Process, finished: Mapping[Place, Record]) -> str | None:
    """Why memory would run out: it did for one of the cases or a smaller one; None where no record says so.

    Smaller is a case that differs in numeric parameters alone, none of which is larger.
    """
    for record in finished.values():
        if record.error is None or record.error.kind != "out_of_memory":
            continue
        small = record.case
        for case in process.cases:
            if msgspec.structs.replace(small, params=case.params) == case and _no_larger(small.params, case.params):
                larger = [name for name, value in case.params.items() if value != small.params[name]]
                at = ", ".join(f"{name}={small.params[name]}" for name in larger) or "these very parameters"
                return f"memory ran out at {at} (trial {record.trial_id}); run it alone to try all the same"
    return None


def _no_larger(smaller: Mapping[str, Any], larger: Mapping[str, Any]) -> bool:
    """Whether each parameter is the same, or a number that is smaller in `smaller`."""
    return all(
        value == larger[name] or (type(value) in (int, float) and value < larger[name])
        for name, value in smaller.items()
    )
