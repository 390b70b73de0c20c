"""Slurm, by its programs: sbatch, srun, squeue, scontrol and scancel. Accounting (sacct) is not needed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

from benchmarker import Allocation, JobState, Launcher, UserError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Literal

_TASKS = (
    "ntasks",
    *(f"ntasks-per-{part}" for part in ("core", "gpu", "node", "socket", "tres")),
    "tasks",
    "tasks-per-node",
)
_OWN = {
    **dict.fromkeys(("array", "chdir", "error", "open-mode", "output", "workdir", "wrap"), ""),
    **dict.fromkeys(("help", "parsable", "test-only", "usage", "version", "wait"), ""),
    **dict.fromkeys(_TASKS, "; a job has one task a node"),
    "clusters": "; submit on a login node of that cluster",
    "nodes": "; use --nodes=N",
}
"""Options of sbatch that are decided here, each with the remedy; sbatch takes what they begin with for them too."""
_STEP = (
    "--ntasks-per-node=1",
    "--overlap",
    "--cpu-bind=none",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
    "--mpi=none",
)
"""One task a node, beside other steps, on all cores of the job; one that ends leaves the others alone."""
_WARNING_S = 60
"""Time before the time limit at which a job gets SIGTERM; Slurm may send it a minute earlier."""
_ANSWER_S = 30.0
"""Time in which the controller must answer."""
_TOLD = 80
"""Most characters that a message repeats of what a program of Slurm printed unexpectedly."""
_COMPLAINT = 300
"""Most characters of a complaint that a message repeats."""
_JOBS = "%A|%T|%N|%r"
"""What squeue prints of a job; the reason is the last, because it may contain a bar."""
_ACTIVE = {"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
_OVER |= {"PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"}


@hookimpl
def make_launcher(options: Mapping[str, str]) -> Launcher:
    """Submit with these options of sbatch, by their long names."""
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise UserError(f"-o {name}: not a long option of sbatch; write it without dashes, such as partition=gpu")
        if own := next((own for own in _OWN if own.startswith(name)), None):
            what = "" if own == name else f"sbatch takes it for {own}; "
            raise UserError(f"-o {name}: {what}launcher.slurm decides it{_OWN[own]}")
        _directive(name, value)
    return Slurm(options)


class Slurm(Launcher):
    """A job is a batch script; its number is that of Slurm."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    def allocation(self) -> Allocation | None:
        """Return the nodes of the step, or of the job if this is its script; raises `UserError` beside them."""
        job = os.environ.get("SLURM_JOB_ID")
        if job is None:
            return None
        names = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "")
        node = os.environ.get("SLURMD_NODENAME")
        if node is None:
            raise UserError(f"Slurm gave {names} to job {job}, but this is another machine: start it with srun")
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise UserError(f"srun started this {tasks} times; start it once, with srun --ntasks=1")
        nodes = [names]
        if {*"[,"} & {*names}:
            nodes = _call("scontrol", "show", "hostnames", names).split()
            if node not in nodes:
                raise UserError(f"scontrol printed {_told(' '.join(nodes))} for {names}, which is without {node}")
        restarts = _whole("SLURM_RESTART_COUNT", os.environ.get("SLURM_RESTART_COUNT", "0"))
        return Allocation("slurm", job, nodes, restarts)

    def node(self) -> str | None:
        """Return Slurm's name of this node, which need not be that of the host."""
        return os.environ.get("SLURMD_NODENAME")

    def command(self, nodes: Sequence[str], program: Sequence[str]) -> Sequence[str]:
        """Return a step of the job, with as many GPUs of each node as the job has of this one.

        What was asked for all nodes together, with --gpus, a step would otherwise ask of its own nodes.
        """
        gpus = os.environ.get("SLURM_GPUS_ON_NODE")
        words = [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", f"--nodelist={','.join(nodes)}", *_STEP]
        words += [f"--gpus-per-node={gpus}"] if gpus else []
        return ["env", "-u", "SLURM_GPUS", "srun", *words, *program]

    def address(self, node: str) -> str:
        """Return the address by which Slurm itself reaches the node."""
        return _fields(_call("scontrol", "--oneliner", "show", "node", node)).get("NodeAddr") or node

    def directives(self, name: str, log: Path, nodes: int) -> Sequence[str]:
        """Return the lines that sbatch reads; options of the user come last, so they count."""
        given = {
            "job-name": name,
            "nodes": str(nodes),
            "ntasks": str(nodes),
            "output": str(log).replace("%", "%%"),
            "open-mode": "append",
            "requeue": "",
            "signal": f"B:TERM@{_WARNING_S}",
        }
        if "no-requeue" in self.options:
            del given["requeue"]
        options = given | dict(self.options)
        return [_directive(option, value) for option, value in options.items()]

    def submit(self, script: Path, log: Path) -> str:
        """Let Slurm try the script, so that what can never start is refused, and submit it."""
        try:
            _call("sbatch", "--test-only", str(script))
        except UserError as error:
            raise UserError(f"{error}; choose other options with -o, or in the site's settings") from error
        printed = _call("sbatch", "--parsable", str(script))
        number = re.search(r"^([0-9]+)(;.*)?\Z", printed, re.MULTILINE)  # a site's sbatch may print more before it
        if not number:
            raise UserError(
                f"sbatch printed {_told(printed)}, not the number of a job; see squeue --me whether there is one"
            )
        return number[1]

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Ask the controller about all jobs at once; it forgets a job some minutes after its end."""
        try:
            heading, *lines = _call("squeue", "--me", "--states=all", f"--format={_JOBS}").split("\n")
        except UserError as error:
            return dict.fromkeys(jobs, JobState("unknown", str(error)))
        rows = [line.split("|", 3) for line in lines]
        known = {job: _state(*rest) for job, *rest in rows if len(rest) == 3}
        other = JobState("ended", "Slurm has forgotten it")
        odd = [heading] if not heading.startswith("JOBID|") else [line for line in lines if line.count("|") < 3]
        if odd:  # then what is not in the list may be there all the same
            other = JobState("unknown", f"squeue printed {_told(odd[0])}")
        return {job: known.get(job, other) for job in jobs}

    def cancel(self, job: str) -> None:
        """Cancel the job."""
        _call("scancel", job)

    def lost_nodes(self, allocation: Allocation) -> Sequence[str]:
        """Return the nodes that are down, or do not answer the controller."""
        told = _call("scontrol", "--oneliner", "show", "node", ",".join(allocation.nodes)).split("\n")
        states = {fields.get("NodeName"): fields.get("State", "") for fields in map(_fields, told)}
        lost = {node for node, state in states.items() if "DOWN" in state or "NOT_RESPONDING" in state or "*" in state}
        return [node for node in allocation.nodes if node in lost]

    def ending(self, allocation: Allocation) -> Literal["preempted", "time limit", "node failure", "cancelled"]:
        """Tell it from what the controller says of the job meanwhile.

        A job that goes back to the queue counts one more restart at once. A job that is warned before its time limit
        does not end yet.
        """
        fields = _of_job(allocation.job)
        if _restarts(fields) > allocation.restarts or fields.get("PreemptTime", "None") != "None":
            return "preempted"
        if fields.get("Reason") == "NodeDown":
            return "node failure"
        return "time limit" if fields.get("JobState") in ("RUNNING", "SIGNALING") else "cancelled"

    def requeue(self, allocation: Allocation) -> None:
        """Ask for it where the job was only warned, as some sites do: otherwise it has failed when its script ends."""
        fields = _of_job(allocation.job)
        if _restarts(fields) == allocation.restarts and fields.get("Requeue") == "1":
            _call("scontrol", "requeue", allocation.job)


def _of_job(job: str) -> dict[str, str]:
    """Return what the controller says of a job, by name."""
    return _fields(_call("scontrol", "--oneliner", "show", "job", job))


def _fields(line: str) -> dict[str, str]:
    """Return the fields of a line of scontrol, by name; of several of one name the first: a comment may hold more."""
    words = [word.partition("=") for word in line.split()]
    return {name: value for name, separator, value in reversed(words) if separator}


def _restarts(fields: Mapping[str, str]) -> int:
    """Return how often the controller says that a job was restarted; raises `UserError` if it does not."""
    return _whole("Restarts of scontrol", fields.get("Restarts", ""))


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UserError(f"{name} is {_told(text)}, not a number")
    return int(text)


def _told(text: str) -> str:
    """Return what a program of Slurm printed, as a message repeats it."""
    return ascii(text if len(text) <= _TOLD else f"{text[:_TOLD]}...")


def _directive(option: str, value: str) -> str:
    """Return the line of a script that gives sbatch an option.

    Raises `UserError` if the value cannot be in it: a newline would end the line, and what follows would be run, and
    sbatch removes backslashes even from quotes.
    """
    if not value.isprintable() or "\\" in value:
        raise UserError(f"--{option}={value!a}: sbatch takes no backslash and nothing unprintable; choose another")
    return f"#SBATCH --{option}={shlex.quote(value)}" if value else f"#SBATCH --{option}"


def _state(state: str, nodes: str, reason: str) -> JobState:
    told = f"{state} ({reason})" if reason not in ("", "None") else state
    if state in _WAITING:
        return JobState("pending", told, nodes)
    if state in _ACTIVE:
        return JobState("running", told, nodes)
    return JobState("ended" if state in _OVER else "unknown", told, nodes)


def _call(*words: str) -> str:
    """Run a program of Slurm, and return what it prints; raises `UserError` with what it complains of."""
    try:
        done = subprocess.run(
            words, capture_output=True, encoding="utf-8", errors="replace", timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{words[0]} is not on PATH; use a login node of a Slurm cluster, or load its module"
        ) from error
    except OSError as error:
        raise UserError(f"cannot run {words[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{words[0]} did not answer within {_ANSWER_S:g} s; try again later") from error
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise UserError(f"{words[0]}: {complaint[:_COMPLAINT].removeprefix(f'{words[0]}: ').removeprefix('error: ')}")
    return done.stdout.strip()
