"""A launcher whose nodes are all this machine: what it runs on a node is a process beside the others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from support.toy import install

RACK = """
    import os
    from benchmarker import Allocation, Launcher, hookimpl

    @hookimpl
    def make_launcher(options):
        return Rack()

    class Rack(Launcher):
        def allocation(self):
            nodes = os.environ.get("RACK_NODES")
            return Allocation("rack", "7", nodes.split(","), 0) if nodes else None

        def node(self):
            return os.environ.get("RACK_HERE")

        def command(self, nodes, program):
            (node,) = nodes
            return ["env", f"RACK_NODE={node}", *os.environ.get(f"RACK_BEFORE_{node}", "").split(), *program]

        def address(self, node):
            return os.environ.get("RACK_ADDRESS", "127.0.0.1")

        def lost_nodes(self, allocation):
            return os.environ.get("RACK_LOST", "").split()

        def directives(self, name, log, nodes):
            return []

        def submit(self, script, log):
            raise NotImplementedError

        def states(self, jobs):
            raise NotImplementedError

        def cancel(self, job):
            raise NotImplementedError
"""


def install_rack(folder: Path) -> None:
    """Put the launcher into a folder; its nodes are those that the variable RACK_NODES names."""
    install(folder, "rack", {"launcher.rack": "rack"}, {"__init__.py": RACK})


def left_of(folder: Path) -> list[psutil.Process]:
    """The processes that agents and ranks are, or that they started, of runs with the launcher in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.environ().get("PYTHONPATH", "") and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            pass
    return found


def none_left(folder: Path) -> None:
    """Wait until none of them is left."""
    deadline = time.monotonic() + 10
    while left := left_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
