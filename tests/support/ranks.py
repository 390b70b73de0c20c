"""Several devices of a CPU in processes of their own, for tests that look inside them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from benchmarker.hooks import registry

LIMIT_S = 300


class ProcessGroup:
    """What `Framework.join` takes; rank 0 sends to the others through a pipe for each."""

    host = own_host = "127.0.0.1"

    def __init__(self, rank: int, queues: list[Any]) -> None:
        self.rank = self.local_rank = rank
        self.ranks = len(queues)
        self._queues = queues

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0."""
        if self.rank:
            return self._queues[self.rank].get()
        for queue in self._queues[1:]:
            queue.put(value)
        return value


def on_devices(framework: str, devices: int, precision: str, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function with a framework that is open on several devices of a CPU, and the arguments.

    Returns the result of each rank; JAX has one rank for all devices. Raises EOFError if one fails.
    """
    ranks = devices if framework == "torch" else 1
    context = multiprocessing.get_context("spawn" if ranks == 1 else "forkserver")
    if ranks > 1:  # all ranks, of every call, are forks of a process that has imported PyTorch
        context.set_forkserver_preload(["torch"])
    queues = [context.SimpleQueue() for _ in range(ranks)]
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        context.Process(
            target=_call,
            args=(framework, devices // ranks, precision, ProcessGroup(rank, queues), pipes[rank][1], function, args),
            daemon=True,
        )
        for rank in range(ranks)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    found = []
    for receiver, _ in pipes:
        assert receiver.poll(LIMIT_S), "a rank does not end"
        found.append(receiver.recv())
    for process in processes:
        process.join(LIMIT_S)
    return found


def _call(
    framework: str,
    devices: int,
    precision: str,
    group: ProcessGroup,
    sender: Any,
    function: Callable[..., Any],
    args: Any,
) -> None:
    opened = registry.load([f"framework.{framework}"]).hook.make_framework(
        device="cpu", precision=precision, threads=None if devices > 1 else 1, profiling="no", devices=devices
    )
    if group.ranks > 1:
        opened.join(group)
    sender.send(function(opened, *args))
