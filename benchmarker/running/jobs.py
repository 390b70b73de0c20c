"""The state of submitted runs: what the launcher says of the job, and what is in the folder of the run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarker.api.errors import UserError
from benchmarker.api.launcher import JobState
from benchmarker.hooks import launchers
from benchmarker.records import store
from benchmarker.records.job import LOG, Attempt, Job, attempts_of, job_of
from benchmarker.records.record import Record

State = Literal["pending", "running", "done", "stopped", "unknown"]


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """A submitted run: its job, the starts of the job, and its records.

    It is `done` if every planned trial has a record, and `stopped` if its job ended before; `detail` says why. The
    number of `planned` trials is None until the plan is made, which is in the allocation. If a file of these cannot be
    read, the state is `unknown` and `detail` names it; `job` is None if it is the job's.
    """

    folder: Path
    job: Job | None
    state: State
    detail: str
    nodes: str
    planned: int | None
    records: tuple[Record, ...]
    attempts: tuple[Attempt, ...]

    @property
    def done(self) -> int:
        """Number of trials with a record that stays."""
        return sum(not store.is_cut(record) for record in self.records)

    @property
    def lost(self) -> list[tuple[int, Attempt]]:
        """The starts of the job, by number, that ended without a word though the job was started again."""
        return [(number, attempt) for number, attempt in enumerate(self.attempts[:-1]) if attempt.ending is None]

    @property
    def failures(self) -> list[Record]:
        """The records of trials that failed."""
        return [record for record in self.records if record.error]


def submitted(results: Iterable[Path]) -> list[SubmittedRun]:
    """Return the submitted runs at `results` (folders of runs, or of one run), oldest first."""
    folders = {file.parent for result in results for file in (result / store.JOB, *result.glob(f"*/{store.JOB}"))}
    jobs: dict[Path, Job | UserError] = {}
    for folder in sorted(folders):
        try:
            if job := job_of(folder):
                jobs[folder] = job
        except UserError as error:
            jobs[folder] = error
    states = _states([job for job in jobs.values() if isinstance(job, Job)])
    return [
        _run(folder, job, states[job.launcher, job.number]) if isinstance(job, Job) else _unread(folder, None, job)
        for folder, job in jobs.items()
    ]


def _states(jobs: Sequence[Job]) -> Mapping[tuple[str, str | None], JobState]:
    """Ask each launcher once for the states of its jobs."""
    states: dict[tuple[str, str | None], JobState] = {}
    for name in dict.fromkeys(job.launcher for job in jobs):
        numbers = [job.number for job in jobs if job.launcher == name and job.number is not None]
        states[name, None] = JobState("unknown", "being submitted")
        try:
            of_launcher = launchers.load_launcher(name).states(numbers)
        except UserError as error:
            of_launcher = dict.fromkeys(numbers, JobState("unknown", str(error)))
        states |= {(name, number): state for number, state in of_launcher.items()}
    return states


def _unread(folder: Path, job: Job | None, fault: UserError) -> SubmittedRun:
    return SubmittedRun(folder, job, "unknown", str(fault), "", None, (), ())


def _run(folder: Path, job: Job, job_state: JobState) -> SubmittedRun:
    try:
        attempts = attempts_of(folder)
        plan = store.plan_of(folder) if (folder / store.PLAN).exists() else None
    except UserError as error:
        return _unread(folder, job, error)
    records = store.read([folder])[0] if plan else []
    complete = plan is not None and sum(not store.is_cut(record) for record in records) == len(plan.order)
    state: State = "stopped"
    detail, nodes = job_state.detail, job_state.nodes
    if complete and job_state.phase in ("ended", "unknown"):
        state, detail = "done", ""
    elif job_state.phase != "ended":
        state = job_state.phase
    elif attempts:
        last = attempts[-1]
        ended = "trials that lost a node are left" if last.ending == "done" else last.ending
        detail = last.message or ended or f"killed without warning; {detail}"
    else:
        detail = f"the run never began: {detail}" + (f"; see {LOG}" if (folder / LOG).exists() else "")
    if attempts and not nodes and state != "pending":
        nodes = attempts[-1].where
    return SubmittedRun(
        folder, job, state, detail, nodes, len(plan.order) if plan else None, tuple(records), tuple(attempts)
    )
