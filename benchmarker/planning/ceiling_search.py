"""Find ceilings: try several sizes, and measure the best of each kind again.

The best of several noisy values is too high. The winner of a thorough search is therefore run again, several times in
fresh processes, and only the median of these trials is the ceiling. A quick survey tries fewer sizes, once each and in
one process for each framework, and takes the best.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product, zip_longest
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import psutil

from benchmarker.api.case import Case, Measuring
from benchmarker.api.precision import PRECISIONS
from benchmarker.hooks import registry
from benchmarker.hooks.cases import Cases
from benchmarker.machine.description import last_cache_bytes
from benchmarker.planning import build, estimate
from benchmarker.planning.factors import Settings
from benchmarker.records.ceilings import MATVEC_ROWS, SMALL, Ceiling, Method, Resource, key_of
from benchmarker.records.plan import Plan, make_plan
from benchmarker.records.record import Record
from benchmarker.worker.bench import BATCHES
from benchmarker.worker.timing import WINDOW_S

SEARCH_TRIALS = 2
SEARCH = Measuring(warmup_steps=2, blocks=20, seconds=1.0, timeout_s=120.0, power="none")
MEASURE = Measuring(preheat=True, preheat_max_s=10.0, blocks=100, seconds=3.0, timeout_s=300.0, power="none")
QUICK = Measuring(warmup_steps=2, blocks=30, seconds=0.4, timeout_s=120.0, power="none")
START_S = 3.5
"""Seconds of a trial outside preheat and timing that are assumed before the first one."""

OPS = ("copy", "triad")
QUICK_CPU_SIDES = (1024, 2048)
QUICK_ACCELERATOR_SIDE = 8192
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
ARRAYS = 9
"""The arrays of a triad in a worker: a, b and c of two sets, a before and after a step, and two on the host.

Together they take at most half of the memory. A virtual machine may report the whole cache of its host.
"""


def resources(names: Sequence[str], precisions: Sequence[str], where: Settings) -> list[Settings]:
    """Settings of each resource in each framework and precision; `where` are those of the device."""
    rows = MATVEC_ROWS.values()
    whole: list[Settings] = [
        {"problem": "gemm", "framework": name, "precision": precision} for name, precision in product(names, precisions)
    ]
    few: list[Settings] = [
        {"problem": problem, "framework": name, "precision": precision, rows_option: count}
        for problem, rows_option in (("gemm", "m"), ("mlp", "batch_size"))
        for name, precision, count in product(names, precisions, rows)
        if precision != "int8" and name in registry.implementing(problem)  # int8 is multiplied by more rows only
    ]
    arrays: list[Settings] = [{"problem": "stream", "framework": name, "op": op} for name, op in product(names, OPS)]
    return [{**work, **where} for work in (*whole, *few, *arrays)]


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


class Survey(NamedTuple):
    """The cases of one framework that a quick survey tries in one process; the first `required` are of each kind."""

    framework: str
    cases: list[Case]
    required: int


def surveys(plan: Plan) -> list[Survey]:
    """The quick part of a search, by framework: its likeliest sizes, those that tell least come last."""
    sizes: dict[str, dict[tuple[str, ...], list[Case]]] = {}
    for case in filter(None, map(_quick, plan.cases)):
        sizes.setdefault(case.framework, {}).setdefault(kind(case), []).append(case)
    return [
        Survey(
            framework,
            [case for turn in zip_longest(*kinds.values()) for case in turn if case],
            required=len(kinds),
        )
        for framework, kinds in sizes.items()
    ]


def _quick(case: Case) -> Case | None:
    """A case as a survey measures it; None if it is left to the thorough search."""
    if resource_of(case) == "compute":
        sides = {case.params[name] for name in ("m", "n", "k")}
        if case.device == "cpu" and not sides <= {*QUICK_CPU_SIDES}:
            return None
        if case.device != "cpu" and sides != {QUICK_ACCELERATOR_SIDE}:
            return None
    return msgspec.structs.replace(case, measuring=QUICK)


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
    best = winners(searched)
    cases = [msgspec.structs.replace(records[0].case, measuring=MEASURE) for records in best]
    return make_plan(cases, trials) if cases else None


def winners(searched: Sequence[Record]) -> list[list[Record]]:
    """The successful trials of the fastest size of each kind, by the median trial."""
    best: dict[tuple[str, ...], tuple[float, list[Record]]] = {}
    for configuration in Cases.of(searched):
        good = [(rate, record) for record in configuration.records if (rate := rate_of(record))]
        if good:
            one = (median(rate for rate, _ in good), [record for _, record in good])
            of = kind(one[1][0].case)
            best[of] = max(best.get(of, one), one, key=lambda pair: pair[0])
    return [records for _, records in best.values()]


def thorough_s(plan: Plan, trials: int) -> float:
    """Seconds that a search and measuring its winners should take, before the first trial."""
    search_s = len(plan.cases) * plan.trials * (START_S + SEARCH.seconds)
    kinds = len({kind(case) for case in plan.cases})
    return search_s + kinds * trials * (START_S + 2 * WINDOW_S + MEASURE.seconds)


def measuring_s(searched: Iterable[Record], winners: int, trials: int) -> float:
    """Seconds that measuring the winners should take, from the trials of the search so far; 0 before the first."""
    each = [
        estimate.expected_s(msgspec.structs.replace(record.case, measuring=MEASURE), record)
        for record in searched
        if record.error is None
    ]
    return winners * trials * fmean(each) if each else 0.0


def quick_ceilings_of(surveyed: Sequence[Record]) -> list[Ceiling]:
    """A quick ceiling for each kind with a successful trial."""
    best = [record for records in winners(surveyed) for record in records]
    return ceilings_of(surveyed, best, "quick")


def ceilings_of(searched: Sequence[Record], measured: Sequence[Record], method: Method = "thorough") -> list[Ceiling]:
    """A ceiling for each winner with a successful trial."""
    sizes = Counter(kind(case.records[0].case) for case in Cases.of(searched))
    highest = []
    for group in Cases.of(measured):
        good = [(rate, record) for record in group.records if (rate := rate_of(record))]
        rates, first = [rate for rate, _ in good], good[0][1] if good else None
        if first is None or (device := key_of(first)) is None:
            continue
        case = first.case
        spread = rates if method == "thorough" else _block_rates(first)
        highest.append(
            Ceiling(
                method=method,
                resource=resource_of(case),
                device=device,
                host=first.machine.host,
                framework=case.framework,
                execution=case.execution,
                version=first.software.libraries.get(case.framework, ""),
                precision=case.precision,
                value=median(rates),
                low=min(spread),
                high=max(spread),
                trials=len(rates),
                searched=sizes[kind(case)],
                params=case.params,
                measured_at=first.started_at,
                run_id=first.run_id if method == "thorough" else None,
            )
        )
    return highest


def rate_of(record: Record) -> float | None:
    """FLOP/s or bytes/s, from the median timed block; None if the trial failed."""
    rates = _block_rates(record)
    return median(rates) if rates and record.error is None else None


def _block_rates(record: Record) -> list[float]:
    """FLOP/s or bytes/s of each timed block."""
    if record.blocks is None or record.cost is None:
        return []
    work = record.cost.flops if resource_of(record.case) == "compute" else record.cost.bytes
    assert work is not None  # a ceiling is that of a problem with a formula
    return [work * record.blocks.steps_per_block / (duration_ns / 1e9) for duration_ns in record.blocks.duration_ns]


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
    return max(LEAST_ARRAY_BYTES, min(CACHES * (last_cache_bytes() or 0), memory_bytes() // (2 * ARRAYS)))


def memory_bytes() -> int:
    """Bytes of the machine's memory."""
    return int(psutil.virtual_memory().total)
