"""How many processes a launcher such as `mpirun` has started for a program, and on how many nodes.

What was asked for stands in the command line, in an allocation or nowhere. What there is, the launcher tells each of
its processes in the environment. Those on this node are known by their scratch folder, which they inherit too.
"""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

import psutil

from benchmarker import Figure

LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun")
FIRST_S = 0.1
"""When the processes are looked at for the first time, s; each time after that comes twice as late, until one tells."""
RANKS, NODES = "launched_ranks", "launched_nodes"
UNTOLD = "none of its processes on this node was seen that has it from its launcher"
ELSEWHERE = "some of its processes are on other nodes, and its launcher does not tell them how many these are"


class _Told(NamedTuple):
    """The variables with the number of processes, of those on the same node, of nodes, and one for what is launched."""

    ranks: str
    local_ranks: str
    nodes: str
    launched: str


_VARIABLES = (
    _Told("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "PMIX_NAMESPACE"),
    _Told("PMI_SIZE", "MPI_LOCALNRANKS", "", "PMI_SIZE"),
    _Told("SLURM_STEP_NUM_TASKS", "", "SLURM_STEP_NUM_NODES", "SLURM_STEP_ID"),
)
"""Those of Open MPI, of MPICH and Intel MPI, and of Slurm, which may have started the daemons of the others."""


def launches(text: str) -> bool:
    """Whether one of the words of a command line is a launcher."""
    return any(PurePath(word).name in LAUNCHERS for word in text.split())


def told(theirs: Mapping[str, str], own: Mapping[str, str]) -> list[Figure]:
    """Return what the environment of a process tells, if what launched it is not what launched this one."""
    for names in _VARIABLES:
        ranks = theirs.get(names.ranks, "")
        if not ranks.isdecimal() or theirs.get(names.launched) == own.get(names.launched):
            continue
        nodes = "1" if theirs.get(names.local_ranks) == ranks else theirs.get(names.nodes, "")
        found = {RANKS: ranks, NODES: nodes}
        return [Figure(name, "1", "higher", [float(value)]) for name, value in found.items() if value.isdecimal()]
    return []


class Watch:
    """Looks for processes with a scratch folder, in a thread, until one of them tells what its launcher has started."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._figures: list[Figure] = []
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        wait_s = FIRST_S
        while not self._figures and not self._ended.wait(wait_s):
            wait_s *= 2
            self._figures = self._seen()

    def _seen(self) -> list[Figure]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                theirs = process.environ()
                if theirs.get("BENCHMARKER_SCRATCH") == self._scratch and (found := told(theirs, os.environ)):
                    return found
        return []

    def end(self) -> list[Figure]:
        """Look no more, and return what was told."""
        self._ended.set()
        return self._figures
