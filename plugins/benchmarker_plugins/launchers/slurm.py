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

_OWN = ("array", "chdir", "error", "nodes", "ntasks", "open-mode", "output", "wrap")
"""Options of sbatch that are decided here."""
_REMEDIES = {"nodes": "; use --nodes=N", "ntasks": "; a job has one task a node"}
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
_ACTIVE = {"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}


@hookimpl
def make_launcher(options: Mapping[str, str]) -> Launcher:
    """Submit with these options of sbatch, by their long names."""
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise UserError(f"-o {name}: not a long option of sbatch; write it without dashes, such as partition=gpu")
        if name in _OWN:
            raise UserError(f"-o {name}: launcher.slurm decides it{_REMEDIES.get(name, '')}")
        if not value.isprintable():
            raise UserError(f"-o {name}: {value!r} is not a value of one line")
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
        nodes = _call("scontrol", "show", "hostnames", names).split() if {*"[,"} & {*names} else [names]
        return Allocation("slurm", job, nodes, int(os.environ.get("SLURM_RESTART_COUNT", "0")))

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
        found = re.search(r"\bNodeAddr=(\S+)", _call("scontrol", "--oneliner", "show", "node", node))
        return found[1] if found else node

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
        return [
            f"#SBATCH --{option}={shlex.quote(value)}" if value else f"#SBATCH --{option}"
            for option, value in options.items()
        ]

    def submit(self, script: Path, log: Path) -> str:
        """Let Slurm try the script, so that what can never start is refused, and submit it."""
        try:
            _call("sbatch", "--test-only", str(script))
        except UserError as error:
            raise UserError(f"{error}; choose other options with -o, or in the site's settings") from error
        return _call("sbatch", "--parsable", str(script)).partition(";")[0]

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Ask the controller about all jobs at once; it forgets a job some minutes after its end."""
        try:
            lines = _call("squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%r|%N").splitlines()
        except UserError as error:
            return dict.fromkeys(jobs, JobState("unknown", str(error)))
        known = {job: _state(*rest) for job, *rest in (line.split("|") for line in lines)}
        return {job: known.get(job, JobState("ended", "Slurm has forgotten it")) for job in jobs}

    def cancel(self, job: str) -> None:
        """Cancel the job."""
        _call("scancel", job)

    def lost_nodes(self, allocation: Allocation) -> Sequence[str]:
        """Return the nodes that are down, or do not answer the controller."""
        told = _call("scontrol", "--oneliner", "show", "node", ",".join(allocation.nodes))
        states = dict(re.findall(r"\bNodeName=(\S+).*?\bState=(\S+)", told))
        return [node for node, state in states.items() if "DOWN" in state or "NOT_RESPONDING" in state or "*" in state]

    def ending(self, allocation: Allocation) -> Literal["preempted", "time limit", "node failure", "cancelled"]:
        """Tell it from what the controller says of the job meanwhile.

        A job that goes back to the queue counts one more restart at once. A job that is warned before its time limit
        does not end yet.
        """
        fields = _fields(allocation.job)
        if int(fields["Restarts"]) > allocation.restarts or fields.get("PreemptTime", "None") != "None":
            return "preempted"
        if fields.get("Reason") == "NodeDown":
            return "node failure"
        return "time limit" if fields["JobState"] in ("RUNNING", "SIGNALING") else "cancelled"

    def requeue(self, allocation: Allocation) -> None:
        """Ask for it where the job was only warned, as some sites do: otherwise it has failed when its script ends."""
        fields = _fields(allocation.job)
        if int(fields["Restarts"]) == allocation.restarts and fields["Requeue"] == "1":
            _call("scontrol", "requeue", allocation.job)


def _fields(job: str) -> dict[str, str]:
    """Return what the controller says of a job, by name."""
    return dict(re.findall(r"(\S+?)=(\S*)", _call("scontrol", "--oneliner", "show", "job", job)))


def _state(state: str, reason: str, nodes: str) -> JobState:
    told = f"{state} ({reason})" if reason not in ("", "None") else state
    return JobState("pending" if state in _WAITING else "running" if state in _ACTIVE else "ended", told, nodes)


def _call(*words: str) -> str:
    """Run a program of Slurm, and return what it prints; raises `UserError` with what it complains of."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except FileNotFoundError as error:
        raise UserError(
            f"{words[0]} is not on PATH; use a login node of a Slurm cluster, or load its module"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{words[0]} did not answer within {_ANSWER_S:g} s; try again later") from error
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise UserError(f"{words[0]}: {complaint.removeprefix(f'{words[0]}: ').removeprefix('error: ')}")
    return done.stdout.strip()
