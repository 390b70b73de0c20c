"""A Slurm of four virtual nodes on this machine, of the installed programs or of Debian's packages, unpacked."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"]
PACKAGES += ["libmunge2", "libhwloc15", "liblua5.1-0"]
NODES = 4
DAEMONS = ("slurmctld", "slurmctld-wlm", "slurmscriptd", "slurmd", "slurmd-wlm")

CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
{plugins}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2,sched_min_interval=0
PartitionName=main Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=warned Nodes=ALL MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: its folder, the variables with which programs find it, and how a node is started."""

    folder: Path
    env: dict[str, str]
    start: Callable[[str], None]

    def run(self, *words: str) -> str:
        """Run a program of Slurm, and return what it prints."""
        done = subprocess.run(words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What the controller says about a job, by field."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(word.partition("=")[::2] for word in text.split() if "=" in word)

    def wait(self, number: str, *states: str, limit_s: float = 60.0) -> dict[str, str]:
        """Wait until a job is in one of the states."""
        deadline = time.monotonic() + limit_s
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < deadline, job
            time.sleep(0.2)
        return job

    def process(self, name: str) -> psutil.Process:
        """The daemon of this name: `slurmctld`, or that of a node."""
        return psutil.Process(int((self.folder / f"{name}.pid").read_text()))

    def processes(self) -> list[psutil.Process]:
        """All processes of this Slurm: daemons, those of steps, and what they started."""
        return [process for process in psutil.process_iter() if self._name(process)]

    def left(self) -> list[psutil.Process]:
        """Those of jobs, without the daemons."""
        return [process for process in psutil.process_iter() if self._name(process) not in ("", *DAEMONS)]

    def _name(self, process: psutil.Process) -> str:
        """The name of a process of this Slurm, otherwise empty; a daemon of a step has no variables, but its folder."""
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"] or process.cwd() == str(self.folder):
                return process.name()
        return ""


@contextlib.contextmanager
def running(cache: Path) -> Iterator[Slurm]:
    """A Slurm of four nodes; the test is skipped, with the reason, where there is none to be had.

    `cache` is a folder for Debian's packages. All processes have ended when the context ends.
    """
    env, plugins = _programs(cache)
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name:  # sockets' paths must be short
        folder = Path(name)
        env["SLURM_CONF"] = f"{folder}/slurm.conf"
        for each in ("state", "spool"):
            (folder / each).mkdir()
        port, *ports = _free_ports(NODES + 1)
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, port=port, user=getpass.getuser(), plugins=plugins, folder=folder)
        nodes = {f"node{number}": port for number, port in enumerate(ports, 1)}
        for node, port in nodes.items():
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=1000\n"
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

        def start(node: str) -> None:
            step = shutil.which("slurmstepd", path=env["PATH"])
            slurm.run("slurmd", *(("-d", step) if step else ()), "-N", node)

        slurm = Slurm(folder, env, start)
        try:
            slurm.run("slurmctld")
            for node in nodes:
                start(node)
            deadline = time.monotonic() + 20
            while slurm.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T").split() != ["idle"] * 4:
                assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()
                time.sleep(0.1)
            yield slurm
        finally:
            ours = slurm.processes()
            for process in ours:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(ours, timeout=10)


def _programs(cache: Path) -> tuple[dict[str, str], str]:
    """The variables with which the programs of Slurm run, and where its plugins are."""
    if shutil.which("slurmctld") and shutil.which("slurmd"):
        return {"PATH": os.environ["PATH"]}, ""
    unpacked = cache / "unpacked"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("Slurm is not installed, and this is no Debian whose packages could be unpacked")
    for command in (["apt-get", "download", *PACKAGES], ["apt-get", "update"], ["apt-get", "download", *PACKAGES]):
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=120)
        if done.returncode == 0 and command[1] == "download":
            break
    else:
        pytest.skip(f"Slurm is not installed, and its packages cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    for package in cache.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
    programs, libraries = unpacked / "usr/sbin", unpacked / f"usr/lib/{platform.machine()}-linux-gnu"
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        (programs / name).symlink_to(f"{name}-wlm")
    path = f"{programs}:{unpacked / 'usr/bin'}:{os.environ['PATH']}"
    plugins = libraries / "slurm-wlm"
    return {"PATH": path, "LD_LIBRARY_PATH": f"{plugins}:{libraries}"}, f"PluginDir={plugins}"


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
