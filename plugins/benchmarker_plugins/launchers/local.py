"""Jobs in the background of this machine, one process each."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from benchmarker import JobState, Launcher, UserError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@hookimpl
def make_launcher(options: Mapping[str, str]) -> Launcher:
    """Start jobs on this machine; there is nothing to choose."""
    if options:
        raise UserError(f"launcher.local has no options; leave -o {next(iter(options))} out")
    return Local()


class Local(Launcher):
    """A job is a session of its own; its number is HOST:PID:START, because a process id alone is used again."""

    def allocation(self) -> None:
        """None: a job in the background has no more of the machine than any other program."""

    def directives(self, name: str, log: Path, nodes: int) -> Sequence[str]:
        """None: the job begins at once, and nothing limits it."""
        if nodes > 1:
            raise UserError(f"launcher.local has this machine alone; leave --nodes={nodes} out")
        return ()

    def submit(self, script: Path, log: Path) -> str:
        """Start the script in a session of its own; it goes on when this process ends."""
        start = 'setsid /bin/bash "$0" >>"$1" 2>&1 </dev/null & echo $!'
        pid = int(subprocess.check_output(["/bin/bash", "-c", start, script, log]))
        return f"{socket.gethostname()}:{pid}:{_started(pid)}"

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Whether each process runs; that of another machine is unknown."""
        return {job: _state(job) for job in jobs}

    def cancel(self, job: str) -> None:
        """Send SIGTERM to the job."""
        if _state(job).phase == "running":
            with suppress(ProcessLookupError):
                os.kill(int(job.split(":")[1]), signal.SIGTERM)


def _state(job: str) -> JobState:
    parts = re.fullmatch(r"([^:]*):([0-9]{1,10}):([0-9.]*)", job)
    if parts is None:
        return JobState("unknown", "its number is not that of a job here")
    host, pid, started = parts.groups()
    if host != socket.gethostname():
        return JobState("unknown", "of another machine", host)
    if started and _started(int(pid)) == started:
        return JobState("running", f"process {pid}", host)
    return JobState("ended", "the process has ended", host)


def _started(pid: int) -> str:
    """When a process was started, s since 1970; empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.create_time():.2f}"
    return ""
