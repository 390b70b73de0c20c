"""Text generation: the times of tokens, and the rates of input and output tokens; definitions in docs/problems.md."""

from collections.abc import Mapping
from statistics import median

import numpy as np

from benchmarker import Metric, Plot, Record, hookimpl

PLOTS = {"ttft_s": Plot("TTFT", "predicted_ttft_s"), "tpot_s": Plot("TPOT", "predicted_tpot_s")}
LEAST_GAPS = {50: 1, 90: 10, 95: 20, 99: 100}
"""How many gaps each percentile needs: so many that one of them lies above it, and for the median one."""


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the times of tokens, each waited for, and the rates of the timed blocks, which wait for none."""
    why = "" if record.token_times else record.reasons.get("token_times", "")
    return {**_times(record, why), **_rates(record, why)}


def _times(record: Record, none: str) -> dict[str, Metric]:
    """Return TTFT, TPOT and end-to-end time, medians over requests, and percentiles of the gaps of all requests."""
    times = record.token_times
    first_s = [each / 1e9 for each in times.first_ns] if times else []
    gaps_s = [np.array(gaps) / 1e9 for gaps in times.gap_ns] if times else []
    ends_s = [first + float(gaps.sum()) for first, gaps in zip(first_s, gaps_s, strict=False)]
    every_s = np.concatenate(gaps_s) if gaps_s else np.array([])
    no_gap = none or "its requests have one token each"
    values = {
        "ttft_s": (median(first_s) if first_s else None, none or "its requests have no prompt"),
        "tpot_s": (median(float(gaps.mean()) for gaps in gaps_s) if gaps_s else None, no_gap),
        "e2e_s": (median(ends_s) if ends_s else None, none or "its requests have no prompt, or only one token"),
    }
    for percent, least in LEAST_GAPS.items():
        enough = len(every_s) >= least
        few = f"there are {len(every_s)} gaps, and {least} are needed" if len(every_s) else no_gap
        values[f"itl_p{percent}_s"] = (float(np.percentile(every_s, percent)) if enough else None, few)
    return {
        name: Metric(value, "s", "lower", why if value is None else None, headline=name in PLOTS, plot=PLOTS.get(name))
        for name, (value, why) in values.items()
    }


def _rates(record: Record, none: str) -> dict[str, Metric]:
    """Return the tokens of all timed steps divided by the time of all timed blocks, input and output apart."""
    cost, blocks = record.cost, record.blocks
    steps_per_s = 0.0
    if cost and blocks:
        steps_per_s = blocks.steps_per_block * len(blocks.duration_ns) / (sum(blocks.duration_ns) / 1e9)
    else:
        none = record.not_timed
    output_per_s = cost.output_tokens * steps_per_s if cost else 0.0
    rates = {
        "output_tokens_per_s": ("output", output_per_s),
        "output_tokens_per_s_per_user": ("output", output_per_s / cost.samples if cost else 0.0),
        "input_tokens_per_s": ("input", cost.input_tokens * steps_per_s if cost else 0.0),
    }
    return {
        name: Metric(value or None, "1/s", "higher", None if value else none or f"its steps have no {kind} tokens")
        for name, (kind, value) in rates.items()
    }
