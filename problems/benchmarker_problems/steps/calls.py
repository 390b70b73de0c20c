"""Steps that are calls of a library of routines, prepared for each batch.

They write to arrays that later steps may write to: a result is read before the next step.
"""

from collections.abc import Callable, Iterable
from itertools import cycle

import numpy as np

from benchmarker import Workload

Call = Callable[[], object]
Prepared = tuple[dict[str, np.ndarray], list[Call]]
"""The results of a batch by name, and the calls that write them."""


def workload(
    batches: Iterable[Prepared], in_order: Callable[[str, np.ndarray], np.ndarray] = lambda _, value: value
) -> Workload:
    """Return the workload whose steps make the calls of a batch; `in_order` gives the axes of a result their order."""
    turns = cycle(list(batches))

    def step() -> dict[str, np.ndarray]:
        results, calls = next(turns)
        for call in calls:
            call()
        return results

    return Workload(
        step, lambda results: {name: in_order(name, value.astype(np.float64)) for name, value in results.items()}
    )
