"""Find ceilings: try several sizes, and measure the best of each kind again.

The best of several noisy values is too high. The winner of the search is therefore run again, several times in fresh
processes, and only the median of these trials is the ceiling.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import msgspec
import psutil

from benchmarker.api.case import Measuring
from benchmarker.api.precision import PRECISIONS
from benchmarker.planning import build, estimate
from benchmarker.records.ceilings import MATVEC_ROWS, SMALL, Ceiling, key_of
from benchmarker.records.configurations import configurations
from benchmarker.records.plan import make_plan
from benchmarker.worker.bench import BATCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarker.api.case import Case
    from benchmarker.planning.factors import Settings
    from benchmarker.records.ceilings import Resource
    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record

SEARCH_TRIALS = 2
SEARCH = Measuring(warmup_steps=2, blocks=20, seconds=1.0, timeout_s=120.0, power="none")
MEASURE = Measuring(preheat=True, preheat_max_s=10.0, blocks=100, seconds=3.0, timeout_s=300.0, power="none")

CPU_SIDES = (512, 1024, 1536, 2048, 3072, 4096)
ACCELERATOR_SHAPES = (
    *((side, side, side, b) for side in (2048, 4096, 8192, 12288) for b in (False, True)),
    (8192, 8192, 2048, False),
    (4096, 4096, 16384, False),
)
"""M, N, K, and whether B is stored as [N, K], which is faster in some libraries."""
LEAST_ARRAY_BYTES = 2**27
ACCELERATOR_ARRAY_BYTES = 2**30
MATRIX_K = 8192
"""Rows of a matrix of weights."""
SMALL_WIDTH = 1024
"""Rows and columns of a small matrix of weights."""
CACHES = 4
"""An array is at least this many times as large as all last-level caches together: the rule of STREAM (McCalpin)."""
ARRAYS = 12
"""The arrays of a triad in a worker: b and c of each of four batches, a before and after a step, and two on the host.

Together they take at most half of the memory. A virtual machine may report the whole cache of its host.
"""


def search(settings: Sequence[Settings]) -> Plan:
    """The plan that tries every size; `settings` name problem, framework, device and precision.

    Raises `UserError` if nothing is left to run.
    """
    asked, left_out = build.make_cases(settings)
    cases = [
        msgspec.structs.replace(case, params={**case.params, **size}, measuring=SEARCH)
        for case in asked
        for size in _sizes(case)
    ]
    return make_plan(cases, SEARCH_TRIALS, left_out=left_out)


def resource_of(case: Case) -> Resource:
    """The resource of a device that a case measures."""
    if case.problem == "stream":
        return "memory"
    of_small = case.problem == "mlp"
    rows = case.params["batch_size" if of_small else "m"]
    resources = [SMALL[name] if of_small else name for name, few in MATVEC_ROWS.items() if few == rows]
    return resources[0] if resources else "compute"


def final(searched: Sequence[Record], trials: int) -> Plan | None:
    """The plan that measures the winners of a search again; None if no trial succeeded."""
    best: dict[tuple[str, ...], tuple[float, Case]] = {}
    for each in configurations(searched):
        if rates := [rate for record in each.records if (rate := rate_of(record))]:
            case = each.records[0].case
            one = (median(rates), msgspec.structs.replace(case, measuring=MEASURE))
            best[kind(case)] = max(best.get(kind(case), one), one, key=lambda pair: pair[0])
    return make_plan([case for _, case in best.values()], trials) if best else None


def measuring_s(searched: Iterable[Record], winners: int, trials: int) -> float:
    """Seconds that measuring the winners should take, from the trials of the search so far; 0 before the first."""
    each = [
        estimate.expected_s(msgspec.structs.replace(record.case, measuring=MEASURE), record)
        for record in searched
        if record.error is None
    ]
    return winners * trials * fmean(each) if each else 0.0


def ceilings_of(searched: Sequence[Record], measured: Sequence[Record]) -> list[Ceiling]:
    """A ceiling for each winner with a successful trial."""
    sizes = Counter(kind(each.records[0].case) for each in configurations(searched))
    found = []
    for each in configurations(measured):
        good = [(rate, record) for record in each.records if (rate := rate_of(record))]
        rates, first = [rate for rate, _ in good], good[0][1] if good else None
        if first is None or (device := key_of(first)) is None:
            continue
        case = first.case
        found.append(
            Ceiling(
                resource=resource_of(case),
                device=device,
                host=first.machine.host,
                framework=case.framework,
                version=first.software.libraries.get(case.framework, ""),
                precision=case.precision,
                value=median(rates),
                low=min(rates),
                high=max(rates),
                trials=len(rates),
                searched=sizes[kind(case)],
                params=case.params,
                measured_at=first.started_at,
                run_id=first.run_id,
            )
        )
    return found


def rate_of(record: Record) -> float | None:
    """FLOP/s or bytes/s, from the median timed block; None if the trial failed."""
    if record.blocks is None or record.cost is None or record.error is not None:
        return None
    work = record.cost.flops if resource_of(record.case) == "compute" else record.cost.bytes
    return work * record.blocks.steps_per_block / (median(record.blocks.duration_ns) / 1e9)


def kind(case: Case) -> tuple[str, ...]:
    """What has a winner of its own: a resource in a framework and a precision."""
    return resource_of(case), case.framework, case.precision


def _sizes(case: Case) -> Iterator[Mapping[str, int | bool]]:
    """Sizes to try for the resource that a case measures."""
    if case.problem == "mlp":
        return _small_matrices(case)
    resource = resource_of(case)
    return _shapes(case) if resource == "compute" else _arrays(case) if resource == "memory" else _matrices(case)


def _shapes(case: Case) -> Iterator[Mapping[str, int | bool]]:
    """Sizes of a matrix product."""
    squares = [(side, side, side, False) for side in CPU_SIDES]
    for m, n, k, transpose_b in squares if case.device == "cpu" else ACCELERATOR_SHAPES:
        yield {"m": m, "n": n, "k": k, "transpose_b": transpose_b}


def _arrays(case: Case) -> Iterator[Mapping[str, int | bool]]:
    """The length of arrays that do not fit into the last-level caches."""
    yield {"n": _beyond_caches(case) // PRECISIONS[case.precision].parameter_bytes}


def _matrices(case: Case) -> Iterator[Mapping[str, int | bool]]:
    """Sizes of matrices of weights, stored either way; those that take turns do not fit into the last-level caches."""
    n = _beyond_caches(case) // (BATCHES * MATRIX_K * PRECISIONS[case.precision].parameter_bytes)
    for transpose_b in (False, True):
        yield {"k": MATRIX_K, "n": n, "transpose_b": transpose_b}


def _small_matrices(case: Case) -> Iterator[Mapping[str, int | bool]]:
    """Numbers of small matrices, stored either way, that together do not fit into the last-level caches."""
    layers = _beyond_caches(case) // (SMALL_WIDTH**2 * PRECISIONS[case.precision].parameter_bytes)
    for by_output in (False, True):
        yield {"width": SMALL_WIDTH, "layers": layers, "by_output": by_output}


def _beyond_caches(case: Case) -> int:
    """Bytes that do not fit into the last-level caches of a case's device, unless that is more than memory allows."""
    if case.device != "cpu":
        return ACCELERATOR_ARRAY_BYTES
    return max(LEAST_ARRAY_BYTES, min(CACHES * last_cache_bytes(), memory_bytes() // (2 * ARRAYS)))


def memory_bytes() -> int:
    """Bytes of the machine's memory."""
    return int(psutil.virtual_memory().total)


def last_cache_bytes(folder: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of all last-level caches together, as Linux reports them; 0 if it does not."""
    caches: dict[tuple[int, str], int] = {}
    for index in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            caches[level, (index / "shared_cpu_list").read_text()] = int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
