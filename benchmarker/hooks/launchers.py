"""Launchers, from the registered `launcher.*` plugins."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation, Ending, Launcher
from benchmarker.formatting import count
from benchmarker.hooks import registry


def load_launcher(name: str, options: Mapping[str, str] | None = None) -> Launcher:
    """Return a launcher; raises `UserError` if there is none of this name, or if it does not have an option."""
    launcher: Launcher = registry.load([f"launcher.{name}"]).hook.make_launcher(options=options or {})
    return launcher


def allocation() -> Allocation | None:
    """Return the allocation that this process runs in, as the first launcher knows it; None outside of any.

    The node of this process is the first of its nodes.
    """
    plugins = registry.registered("launcher").values()
    for plugin in plugins:
        if registry.trouble(plugin) is None:
            launcher = load_launcher(plugin.name)
            if allocated := launcher.allocation():
                here = launcher.node()
                return msgspec.structs.replace(allocated, nodes=sorted(allocated.nodes, key=lambda node: node != here))
    return None


def check_nodes(needed: int, allocation: Allocation | None) -> None:
    """Raise `UserError` if the allocation has fewer nodes than are needed, or if its launcher starts nothing there."""
    if needed == 1:
        return
    if allocation is None:
        raise UserError(f"--nodes={needed}: not inside a launcher's allocation; use `submit --nodes={needed}`")
    if needed > len(allocation.nodes):
        has = f"job {allocation.job} has {count(len(allocation.nodes), 'node')}"
        raise UserError(f"--nodes={needed}: {has} ({', '.join(allocation.nodes[:4])}); ask for more")
    load_launcher(allocation.launcher).command(allocation.nodes[:1], [])


def ending(allocation: Allocation) -> Ending:
    """Return why SIGTERM was sent to this process, as the launcher of its allocation tells."""
    try:
        return load_launcher(allocation.launcher).ending(allocation)
    except UserError:  # the launcher does not answer, and time is short
        return "cancelled"


def lost_nodes(allocation: Allocation) -> Sequence[str]:
    """Return the nodes of the allocation that its launcher knows to be lost."""
    try:
        return load_launcher(allocation.launcher).lost_nodes(allocation)
    except UserError:  # the launcher does not answer, and time is short
        return ()


def requeue(allocation: Allocation) -> None:
    """Put the job of this process back on the queue if it is not there; what the launcher refuses is left."""
    with suppress(UserError):
        load_launcher(allocation.launcher).requeue(allocation)


def named(allocation: Allocation) -> str:
    """Return an allocation in words: `slurm job 12 on node1`."""
    restarts = f", restart {allocation.restarts}" if allocation.restarts else ""
    return f"{allocation.launcher} job {allocation.job} on {', '.join(allocation.nodes)}{restarts}"
