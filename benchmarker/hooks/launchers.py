"""Launchers, from the registered `launcher.*` plugins."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation, Ending, Launcher
from benchmarker.hooks import registry


def load_launcher(name: str, options: Mapping[str, str] | None = None) -> Launcher:
    """Return a launcher; raises `UserError` if there is none of this name, or if it does not have an option."""
    launcher: Launcher = registry.load([f"launcher.{name}"]).hook.make_launcher(options=options or {})
    return launcher


def whole_allocation() -> Allocation | None:
    """Return the allocation that this process runs in, as the first launcher knows it; None outside of any."""
    plugins = registry.registered("launcher").values()
    usable = (load_launcher(plugin.name) for plugin in plugins if registry.trouble(plugin) is None)
    return next(filter(None, (launcher.allocation() for launcher in usable)), None)


def allocation() -> Allocation | None:
    """Return the allocation that this process runs in, None outside of any; raises `UserError` if it has several nodes.

    A run uses one node; what uses several calls `whole_allocation`.
    """
    found = whole_allocation()
    if found and len(found.nodes) > 1:
        raise UserError(
            f"job {found.job} has {len(found.nodes)} nodes ({', '.join(found.nodes[:4])}); a run uses one: "
            "ask for one, or start it on one, such as with srun --nodes=1"
        )
    return found


def ending(allocation: Allocation) -> Ending:
    """Return why SIGTERM was sent to this process, as the launcher of its allocation tells."""
    try:
        return load_launcher(allocation.launcher).ending(allocation)
    except UserError:  # the launcher does not answer, and time is short
        return "cancelled"


def requeue(allocation: Allocation) -> None:
    """Put the preempted job of this process back on the queue if it is not there; what the launcher refuses is left."""
    with suppress(UserError):
        load_launcher(allocation.launcher).requeue(allocation)


def named(allocation: Allocation) -> str:
    """Return an allocation in words: `slurm job 12 on node1`."""
    restarts = f", restart {allocation.restarts}" if allocation.restarts else ""
    return f"{allocation.launcher} job {allocation.job} on {', '.join(allocation.nodes)}{restarts}"
