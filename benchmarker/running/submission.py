"""Submission of a plan to a launcher: the script, and what its job does when it starts, perhaps more than once."""

import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarker.api.errors import TerminatedError, UserError, concerning
from benchmarker.api.launcher import Allocation, Launcher
from benchmarker.files.atomic import encode, write
from benchmarker.hooks import launchers
from benchmarker.machine import description
from benchmarker.machine.description import installed
from benchmarker.planning import build, plan_file
from benchmarker.records import job as jobs
from benchmarker.records import store
from benchmarker.records.job import LOG, SCRIPT, Attempt, Job
from benchmarker.records.plan import Plan
from benchmarker.records.store import PLAN_FILE, RunFolder
from benchmarker.running.site import Site
from benchmarker.running.trial import PreemptedError

_CHECK_S = 10.0
"""Time in which bash must have read a script."""


@dataclass(frozen=True)
class LaunchSpec:
    """How jobs are started: by a launcher, with its name and options, and with the settings of the site."""

    name: str
    options: Mapping[str, str]
    launcher: Launcher
    site: Site


def script(launch: LaunchSpec, folder: Path, nodes: int) -> str:
    """Return the script of a job of so many nodes that goes on with the run in `folder`, however often it starts.

    It runs this Python, on the first of the nodes. A command that fails before ends the job. Raises `UserError` if a
    path or an option cannot be in a script, or if bash does not understand the site's setup.
    """
    folder = folder.absolute()
    path = _one_line(str(folder), "name another folder with --results")
    here = _one_line(str(Path.cwd()), "submit from another folder")
    program = [*launch.site.prefix, sys.executable, "-m", "benchmarker", "plan", "run", path]
    directives = launch.launcher.directives(f"benchmarker-{folder.name[-8:]}", folder / LOG, nodes)
    lines = [
        "#!/bin/bash",
        *(_one_line(line, "choose other options with -o") for line in directives),
        "set -e",
        f"cd {shlex.quote(here)}",
        *launch.site.setup,
        "",  # what a backslash at the end of the setup would join with
        f"exec {_one_line(shlex.join(program), 'change prefix in the settings of the site')}",
    ]
    text = "\n".join(lines) + "\n"
    setup = "\n".join(launch.site.setup)
    _check_syntax("setup in the settings of the site", setup)  # apart: `&&` at its end would take in what follows
    _check_syntax("the script of the job", text)
    return text


def _one_line(text: str, remedy: str) -> str:
    """Return a text for a line of a script; raises `UserError` if it has a newline, or what cannot be printed.

    After a newline it would be run as a command of its own.
    """
    if not text.isprintable():
        raise UserError(f"{text!a} cannot be in the script of a job, because a character is not printable; {remedy}")
    return text


def _check_syntax(what: str, shell: str) -> None:
    """Raise `UserError` if bash does not understand lines of shell, which are not run."""
    try:
        done = subprocess.run(["bash", "-n"], input=shell.encode(), capture_output=True, timeout=_CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{what} cannot be checked with bash: {error}") from error
    if done.returncode or done.stderr:
        complaint = done.stderr.decode(errors="replace").partition("\n")[0].removeprefix("bash: ")
        raise UserError(f"{what} is not valid for bash: {complaint}")


def check(path: Path, name: str, parts: Sequence[int] = ()) -> None:
    """Refuse a plan file that no node could run; what a node's devices support is seen only there.

    With `parts`, each case must be in one of them: it states so many nodes.
    """
    description = plan_file.read(path, name)
    with concerning(path):
        suite = build.suite_of(description)
    stated = {int(case.settings.get("nodes") or 1) for case in suite.cases}
    if parts and stated != {*parts}:
        wanted = ",".join(map(str, sorted(stated)))
        raise UserError(
            f"--nodes={','.join(map(str, parts))}: {path} has cases with nodes = {wanted}; use --nodes={wanted}"
        )


def submit_parts(plan: Path, results: Path, launch: LaunchSpec, nodes: Sequence[int]) -> list[tuple[Path, Job]]:
    """Submit a job for each number of nodes, with the cases that state it; returns their folders and jobs.

    Raises `UserError` if the launcher refuses one; those before it are cancelled then.
    """
    check(plan, plan.stem, nodes)
    for number in nodes:
        launch.launcher.directives("", plan, number)
    done: list[tuple[Path, Job]] = []
    with ExitStack() as undo:
        for number in nodes:
            path, job = submit(plan, results, launch, number, number)
            done.append((path, job))
            undo.callback(_withdraw, launch.launcher, path, job)
        undo.pop_all()
    return done


def _withdraw(launcher: Launcher, path: Path, job: Job) -> None:
    """Cancel a job; nothing is left if it has not begun."""
    launcher.cancel(str(job.number))
    if not jobs.attempts_of(path):
        shutil.rmtree(path, ignore_errors=True)


def submit(plan: Path, results: Path, launch: LaunchSpec, nodes: int, part: int | None = None) -> tuple[Path, Job]:
    """Submit a plan file, or the unfinished run in a folder; returns the folder of the run, and its job.

    With `part`, the job runs only the cases that state so many nodes. Raises `UserError` if the launcher refuses it;
    nothing is left then, and a run that was there is as before.
    """
    earlier = _unfinished(plan) if plan.is_dir() else None
    source, stem = (plan / PLAN_FILE, earlier.plan) if earlier else (plan, plan.stem)
    check(source, stem)
    job = Job(
        launcher=launch.name,
        options=dict(launch.options),
        nodes=nodes,
        plan=stem,
        part=earlier.part if earlier else part,
        submitted_at=description.utc_now(),
        installed=installed(),
    )
    path = plan if earlier else store.new_submission(results, source.read_bytes())
    try:
        write(path / SCRIPT, script(launch, path, nodes).encode())
        jobs.save_job(path, job)
        number = launch.launcher.submit((path / SCRIPT).absolute(), (path / LOG).absolute())
    except BaseException as error:
        if earlier:
            jobs.save_job(path, earlier)
        else:
            shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write to {path}: {error.strerror}; name another folder with --results") from error
        raise
    job = msgspec.structs.replace(job, number=number)
    try:
        jobs.save_job(path, job)
    except OSError as error:
        launch.launcher.cancel(number)
        raise UserError(f"cannot write to {path}: {error.strerror}; job {number} was cancelled") from error
    return path, job


def _unfinished(path: Path) -> Job:
    """Return the job of a run that may be submitted again; raises `UserError` if it may not."""
    job = jobs.job_of(path)
    if job is None:
        raise UserError(
            f"{path} is not the folder of a submitted run; name a plan file, or go on with `plan run {path}`"
        )
    if job.number:
        state = launchers.load_launcher(job.launcher).states([job.number])[job.number]
        if state.phase != "ended":
            raise UserError(
                f"job {job.number} of {path} is not known to have ended ({state.detail}); wait, or cancel it"
            )
    if (path / store.PLAN).exists() and store.RunFolder(path, store.plan_of(path)).is_complete():
        raise UserError(f"{path} is complete: every trial has a record")
    return job


@contextmanager
def opened(path: Path, allocation: Allocation | None, make_plan: Callable[[Path, Job], Plan]) -> Iterator[RunFolder]:
    """Lock the submitted run in a folder for this start of its job, whose beginning and end are noted there.

    `make_plan` makes the plan of the job from its file. A process of an earlier start that the launcher has lost,
    but not ended, ends after its trial, as it sees this start; until then, this one waits. Raises `UserError` if the
    software is not that of the submission, or if a process that the launcher did not start uses the run.
    """
    job = jobs.job_of(path)
    assert job is not None
    is_ours = allocation is not None and job.number in (None, allocation.job)
    number = len(jobs.attempts_of(path))
    run = store.submitted_run(path, lambda: make_plan(path / PLAN_FILE, job), number, wait=is_ours)
    if is_ours:
        with _noted(path, number, allocation):
            _check_installed(path, job)
            with run as folder:
                yield folder
    else:
        _check_installed(path, job)
        with run as folder, _noted(path, number, allocation):
            yield folder


def _check_installed(path: Path, job: Job) -> None:
    """Raise `UserError` if the software is not that of the submission."""
    if changed := jobs.differences(job.installed, installed()):
        raise UserError(f"the software here is not that of the submission: {changed}; submit {path} again")


@contextmanager
def _noted(path: Path, number: int, allocation: Allocation | None) -> Iterator[None]:
    """Note that the job is started, and how this start ends."""
    attempt = Attempt(host=socket.gethostname(), allocation=allocation, started_at=description.utc_now())

    def end(ending: str, message: str = "") -> None:
        ended = msgspec.structs.replace(attempt, ended_at=description.utc_now(), ending=ending, message=message)
        write(store.attempt_path(path, number), encode(ended))

    write(store.attempt_path(path, number), encode(attempt))
    try:
        yield
    except TerminatedError as error:
        ending = launchers.ending(allocation) if allocation else "cancelled"
        if isinstance(error, PreemptedError) and error.lost_node and ending != "preempted":
            ending = "node failure"
        end(ending)
        if allocation and ending in ("preempted", "node failure"):
            launchers.requeue(allocation)
        raise
    except KeyboardInterrupt:
        end("cancelled")
        raise
    except UserError as error:
        end("error", str(error))
        raise
    end("done")
