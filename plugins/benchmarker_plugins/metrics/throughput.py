"""Rates: samples, tokens, FLOPs and minimum bytes per second, over all timed blocks together."""

from collections.abc import Mapping
from typing import Any

from benchmarker import Metric, Plot, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the work of all timed steps divided by the time of all timed blocks (the mean rate that a user sees)."""
    cost, blocks = record.cost, record.blocks
    samples = tokens = flops = bytes_ = None
    reason = no_tokens = no_flops = no_bytes = record.not_timed
    if cost and blocks:
        steps_per_s = blocks.steps_per_block * len(blocks.duration_ns) / (sum(blocks.duration_ns) / 1e9)
        samples = cost.samples * steps_per_s
        tokens, no_tokens = cost.tokens and cost.tokens * steps_per_s, f"{record.case.problem} has no tokens"
        flops = cost.flops * steps_per_s if cost.flops else None
        no_flops = record.reasons.get("cost.flops", f"{record.case.problem} has no FLOPs")
        bytes_ = None if cost.bytes is None else cost.bytes * steps_per_s
        no_bytes = record.reasons.get("cost.bytes", "")
    return {
        "samples_per_s": _rate(samples, "1/s", reason, headline=True, plot=Plot("samples/s"), scored=True),
        "tokens_per_s": _rate(tokens, "1/s", no_tokens, headline=True, plot=Plot("tokens/s")),
        "flop_per_s": _rate(flops, "FLOP/s", no_flops, headline=True),
        "bytes_per_s": _rate(bytes_, "B/s", no_bytes),
    }


def _rate(value: float | None, unit: str, reason: str, **shown: Any) -> Metric:
    return Metric(value, unit, "higher", reason if value is None else None, **shown)
