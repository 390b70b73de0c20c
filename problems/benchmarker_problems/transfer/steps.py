"""Steps of transfers, for any framework."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from benchmarker import Data, Workload


def workload(
    data: Data,
    sources: Sequence[Any],
    *,
    move: Callable[[Any], Any],
    synchronize: Callable[[Any], object],
    to_host: Callable[[Any], np.ndarray],
) -> Workload:
    """Return the step of a framework: it moves the next of the `sources`, which has one batch, and waits for it."""
    batches = cycle(zip(sources, data.batches, strict=True))
    last = data.batches[0]

    def step() -> Any:
        nonlocal last
        source, last = next(batches)
        result = move(source)
        synchronize(result)
        return result

    def verify(result: Any) -> str | None:
        wrong = np.count_nonzero(to_host(result) != last["x"])
        return f"{wrong} of {last['x'].size} numbers are not those that were sent" if wrong else None

    return Workload(step, lambda result: {"x": to_host(result)}, verify=verify)
