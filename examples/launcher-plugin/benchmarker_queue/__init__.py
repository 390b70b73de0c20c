"""A queue of one machine: jobs run one at a time, whoever submitted them. It needs `flock` of util-linux 2.34.

A job's process first is `flock`, which waits for its turn, and then becomes the script. Its number is PID.START.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil

from benchmarker import Allocation, JobState, Launcher, UserError, hookimpl

VARIABLE = "BENCHMARKER_QUEUE"


@hookimpl
def make_launcher(options):
    """Use the queue that `-o name=NAME` names; each has its turn apart from the others."""
    if unknown := set(options) - {"name"}:
        raise UserError(f"launcher.queue has no option {unknown.pop()}; there is: name")
    name = options.get("name", "default")
    if not re.fullmatch(r"\w+", name):
        raise UserError(f"-o name={name}: a queue's name has letters and digits only")
    return Queue(Path(tempfile.gettempdir(), f"benchmarker-queue-{name}.lock"))


class Queue(Launcher):
    """The jobs that wait for one lock."""

    def __init__(self, lock):
        self.lock = lock

    def allocation(self):
        """Return this machine to a process that the queue has started."""
        if VARIABLE not in os.environ:
            return None
        return Allocation("queue", number_of(psutil.Process()), [socket.gethostname()], 0)

    def directives(self, name, log, nodes):
        """None: whoever has the lock has the machine."""
        if nodes > 1:
            raise UserError(f"launcher.queue has this machine alone; leave --nodes={nodes} out")
        return []

    def submit(self, script, log):
        """Start a process that waits for its turn."""
        if not shutil.which("flock"):
            raise UserError("launcher.queue needs the program flock; install util-linux")
        command = ["flock", "--no-fork", self.lock, "/bin/bash", script]
        environment = {**os.environ, VARIABLE: self.lock.name}
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        return number_of(psutil.Process(process.pid))

    def states(self, jobs):
        """Look at the process of each job."""
        return {job: state_of(job) for job in jobs}

    def cancel(self, job):
        """Ask the process to end."""
        if process := process_of(job):
            process.terminate()


def number_of(process):
    """The process id, and when the process was started: the id alone is used again."""
    return f"{process.pid}.{process.create_time():.0f}"


def process_of(job):
    """The process of a job, None if it has ended, or if no job has this number."""
    try:
        process = psutil.Process(int(job.partition(".")[0]))
        return process if number_of(process) == job and process.status() != psutil.STATUS_ZOMBIE else None
    except (ValueError, psutil.NoSuchProcess):
        return None


def state_of(job):
    """A job is pending as long as its process is `flock`."""
    process = process_of(job)
    if process is None:
        return JobState("ended", "the process has ended")
    if process.name() == "flock":
        return JobState("pending", "another job has its turn", socket.gethostname())
    return JobState("running", f"process {process.pid}", socket.gethostname())
