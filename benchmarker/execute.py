"""Running a plan: one trial after the other, each stored before the next begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from benchmarker import store
from benchmarker.errors import UserError
from benchmarker.trial import run_trial

if TYPE_CHECKING:
    from benchmarker.api import Case
    from benchmarker.conversation import Environment, Event
    from benchmarker.record import Record


class Listener(Protocol):
    """Whoever is told how a run goes."""

    def say(self, text: str) -> None:
        """Something about the run as a whole."""

    def begin(self, title: str, case: Case) -> None:
        """A trial begins."""

    def hear(self, event: Event) -> None:
        """A worker has sent an event."""

    def end(self, record: Record) -> None:
        """A trial has ended, and its record is stored."""


def execute(folder: store.RunFolder, environment: Environment, listener: Listener) -> list[Record]:
    """Run the trials of a plan that have no record yet, in its order; returns the records of all, by case and trial.

    Raises `UserError` where the folder cannot be written any more; an interrupt loses the trial in flight alone.
    """
    plan, total = folder.plan, len(folder.plan.order)
    finished = store.done(folder.path, plan)
    if finished:
        failed = sum(record.error is not None for record in finished.values())
        listener.say(f"resuming {folder.path}: {len(finished)} of {total} trials have a record ({failed} failed)")
    for number, (index, trial) in enumerate(plan.order, 1):
        if (index, trial) in finished:
            continue
        case = plan.cases[index]
        trial_id = store.new_id()
        log = folder.log_path(trial_id)
        listener.begin(f"[{number}/{total}] {case.framework} {case.problem}, trial {trial}", case)
        try:
            record = run_trial(plan.run_id, trial_id, case, trial, environment, log, listener.hear)
        except KeyboardInterrupt:
            log.unlink(missing_ok=True)
            listener.say(
                f"interrupted: {len(finished)} of {total} trials are stored in {folder.path}; "
                "the same command with --resume goes on"
            )
            raise
        except OSError as error:
            raise UserError(
                f"cannot write {error.filename}: {error.strerror}; mend that, then go on with --resume"
            ) from error
        folder.save(record)
        finished[index, trial] = record
        listener.end(record)
    return [finished[key] for key in sorted(finished)]
