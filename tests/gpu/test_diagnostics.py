"""Transfers of pinned memory are no slower than others, and enqueuing a kernel takes no longer than completing it."""

from collections.abc import Mapping

import pytest
from support.gpu import FRAMEWORKS, Outcome, Tool, completed, metric

PINNED = 0.9
"""Least rate from or to pinned memory, as a share of that of pageable memory."""
ENQUEUED = 1.2
"""Longest time to enqueue a kernel, as a multiple of the time until it is complete."""


@pytest.mark.gpu(limit_s=120)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_diagnostics(tool: Tool, framework: str) -> None:
    """In {framework}, transfers arrive, those of pinned memory no slower; enqueuing takes no longer than completing."""
    tool.precisions(framework)
    shared = ("sweep", f"--framework={framework}", f"--device={tool.device}", "--trials=1", "--seconds=1")
    memory = "--memory=" + ("pageable" if tool.small else "pageable,pinned")
    size = f"--bytes={'1M' if tool.small else '256M'}"
    moved = tool.command(*shared, "--problem=transfer", "--direction=to_device,from_device,round_trip", memory, size)
    name = "copy_bytes_per_s" if tool.small else "transfer_bytes_per_s"
    rates: dict[str, dict[str, float]] = {}
    for record in completed(moved):
        params = record["case"]["params"]
        rates.setdefault(params["direction"], {})[params["memory"]] = metric(record, name) or 0.0
    (launch,) = completed(tool.command(*shared, "--problem=launch", "--kernels=1"))
    enqueue_s, step_s = metric(launch, "enqueue_s"), metric(launch, "step_time_median_s")
    tool.judge(judge_diagnostics(rates, enqueue_s or 0.0, step_s or 0.0))


def judge_diagnostics(rates: Mapping[str, Mapping[str, float]], enqueue_s: float, step_s: float) -> Outcome:
    """Every rate must be known, that of pinned memory not be lower, and a kernel be enqueued before it is complete."""
    texts, wrong = [], []
    for direction, of in rates.items():
        texts.append(f"{direction} " + ", ".join(f"{memory} {rate / 1e9:.3g} GB/s" for memory, rate in of.items()))
        if not all(of.values()):
            wrong.append(f"{direction} has no rate")
        elif of.get("pinned", of["pageable"]) < PINNED * of["pageable"]:
            wrong.append(f"{direction}: pinned memory reaches {of['pinned'] / of['pageable']:.0%} of pageable")
    if not 0 < enqueue_s <= ENQUEUED * step_s:
        wrong.append(f"a kernel takes {enqueue_s:.3g} s to enqueue and {step_s:.3g} s in all")
    texts.append(f"launch {1e6 * enqueue_s:.3g} µs of {1e6 * step_s:.3g} µs")
    return Outcome("; ".join(texts), wrong, {"enqueue_s": enqueue_s, "launch_s": step_s})
