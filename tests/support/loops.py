"""The tool's measuring loop against a bare loop in the same process, taking turns in random order.

`python -m support.loops LOOP CASES` prints the ratios of cases by name; LOOP is `product`, `copy`, `same` or
`transformers`, and CASES are its arguments by name, in JSON.
"""

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarker import PRECISIONS, Bench, Data, Stepper, open_bench, steps_per_block
from benchmarker.worker.bench import BATCHES

if TYPE_CHECKING:
    from benchmarker_plugins.frameworks.jax import JaxFramework
    from benchmarker_plugins.frameworks.torch import TorchFramework


@dataclass(frozen=True, slots=True)
class Ratio:
    """The tool's time divided by the bare loop's: the median over pairs and its 95% interval, and the bare step, s."""

    value: float
    low: float
    high: float
    bare_s: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def ratio(tool: Callable[[], float], bare: Callable[[], float], pairs: int, seed: int = 0) -> Ratio:
    """Time `pairs` pairs, each in random order; both callables return seconds per step.

    The interval is that of the median by order statistics, with the normal approximation of the binomial
    distribution (Hahn and Meeker, Statistical Intervals, 1991, section 5.2.2).
    """
    rng = random.Random(seed)
    logs, times = [], []
    for _ in range(pairs):
        if rng.random() < 0.5:
            ours, theirs = tool(), bare()
        else:
            theirs, ours = bare(), tool()
        logs.append(math.log(ours / theirs))
        times.append(theirs)
    logs.sort()
    rank = max(0, math.floor(pairs / 2 - 0.98 * math.sqrt(pairs)))
    value, low, high = (math.exp(x) for x in (np.median(logs), logs[rank], logs[-1 - rank]))
    return Ratio(value, low, high, float(np.median(times)))


def compare(bench: Bench, bare: Callable[[], Any], data: Data, pairs: int) -> Ratio:
    """Compare the bench's workload on its data, timed as in a trial, with a bare step in a bare loop."""
    workload = bench.build(bench.problem, data)
    stepper = Stepper(workload.step, bench.framework.synchronize)
    own_block = event_block if bench.case.framework == "torch" and bench.case.device != "cpu" else host_block
    for _ in range(3):
        stepper.block(1)
        host_block(bare, bench.framework.synchronize, 1)
    steps = steps_per_block(stepper)
    return ratio(
        lambda: stepper.block(steps) / 1e9 / steps,
        lambda: own_block(bare, bench.framework.synchronize, steps) / steps,
        pairs,
    )


def same(pairs: int, **case: Any) -> Ratio:
    """Compare the tool's loop over a workload's step with a bare loop over the same step."""
    bench = open_bench(**case)
    data = bench.data(bench.problem, BATCHES)
    return compare(bench, bench.build(bench.problem, data).step, data, pairs)


def transformers(pairs: int, **case: Any) -> Ratio:
    """Compare a step of this project's model with that of the model of Hugging Face `transformers`."""
    from transformers_models import steps

    bench, make_step = steps(**case)
    data = bench.data(bench.problem, BATCHES)
    return compare(bench, make_step(data), data, pairs)


def host_block(step: Callable[[], Any], wait: Callable[[Any], None], steps: int) -> float:
    """Return the seconds of some steps by the host's clock."""
    start = time.perf_counter()
    for _ in range(steps):
        result = step()
    wait(result)
    return time.perf_counter() - start


def event_block(step: Callable[[], Any], wait: Callable[[Any], None], steps: int) -> float:
    """Return the seconds of some steps of PyTorch by the device's own events."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def product(framework: str, device: str, precision: str, size: int, pairs: int) -> Ratio:
    """Compare a square product with the framework's own, which calls cuBLAS on an NVIDIA GPU."""
    bench = open_bench("gemm", framework, device, precision=precision, m=size, n=size, k=size)
    data = bench.data(bench.problem, BATCHES)
    return compare(bench, BARE_PRODUCT[framework](bench, data), data, pairs)


def copy(framework: str, device: str, elements: int, pairs: int) -> Ratio:
    """Compare a copy of fp32 elements with the framework's own."""
    bench = open_bench("stream", framework, device, op="copy", n=elements)
    data = bench.data(bench.problem, BATCHES)
    return compare(bench, BARE_COPY[framework](bench, data), data, pairs)


def _on_device(bench: Bench, data: Data, names: str, kind: Any = None) -> Iterator[list[Any]]:
    """Return the named arrays of each batch on the device, again and again."""
    put = cast("TorchFramework | JaxFramework", bench.framework).put
    return cycle([[put(batch[name], kind) for name in names] for batch in data.batches])


def _torch_product(bench: Bench, data: Data) -> Callable[[], Any]:
    import torch

    from benchmarker_plugins.frameworks.torch import DTYPES

    kind = DTYPES[PRECISIONS[bench.case.precision].parameter]
    batches = _on_device(bench, data, "ab", kind)
    multiply = torch._int_mm if bench.case.precision == "int8" else torch.mm
    return lambda: multiply(*next(batches))


def _jax_product(bench: Bench, data: Data) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from benchmarker_plugins.frameworks.jax import DTYPES

    kind = DTYPES[PRECISIONS[bench.case.precision].parameter]
    result = jnp.int32 if bench.case.precision == "int8" else kind
    batches = _on_device(bench, data, "ab", kind)
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=result))
    return lambda: multiply(*next(batches))


def _torch_copy(bench: Bench, data: Data) -> Callable[[], Any]:
    import torch

    batches = _on_device(bench, data, "b")
    into = torch.empty_like(next(batches)[0])
    return lambda: into.copy_(*next(batches))


def _jax_copy(bench: Bench, data: Data) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    batches = _on_device(bench, data, "b")
    duplicate = jax.jit(jnp.copy)
    return lambda: duplicate(*next(batches))


BARE_PRODUCT = {"torch": _torch_product, "jax": _jax_product}
BARE_COPY = {"torch": _torch_copy, "jax": _jax_copy}
LOOPS: dict[str, Callable[..., Ratio]] = {"product": product, "copy": copy, "same": same, "transformers": transformers}


def main(loop: str, cases: str) -> None:
    """Print the ratio of each case."""
    json.dump({name: asdict(LOOPS[loop](**case)) for name, case in json.loads(cases).items()}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
