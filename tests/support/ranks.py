"""The ranks of a gang in PyTorch, each a process on the CPU, for tests that look inside them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from benchmarker.hooks import registry


class Gang:
    """What `Framework.join` takes; rank 0 sends to the others through a queue for each."""

    host = "127.0.0.1"

    def __init__(self, rank: int, queues: list[Any]) -> None:
        self.rank = rank
        self.ranks = len(queues)
        self._queues = queues

    def tell(self, value: Any) -> Any:
        """The value of rank 0."""
        if self.rank:
            return self._queues[self.rank].get()
        for queue in self._queues[1:]:
            queue.put(value)
        return value


def in_ranks(ranks: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function of a module in each rank, with the framework and the arguments; its results by rank."""
    context = multiprocessing.get_context("spawn")
    queues = [context.Queue() for _ in range(ranks)]
    results = context.Queue()
    processes = [context.Process(target=_rank, args=(rank, queues, results, function, args)) for rank in range(ranks)]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return [found[rank] for rank in range(ranks)]


def _rank(rank: int, queues: list[Any], results: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    hooks = registry.load(["framework.torch"]).hook
    framework = hooks.make_framework(device="cpu", precision="fp64", threads=1, profiling="no", devices=1)
    try:
        framework.join(Gang(rank, queues))
        results.put((rank, function(framework, *args)))
    except Exception as error:  # noqa: BLE001 - reported as the result
        results.put((rank, f"{type(error).__name__}: {error}"))
