"""Rates: samples, tokens, FLOPs and minimum bytes per second, over all timed blocks together."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the work of all timed steps divided by the time of all timed blocks (the mean rate that a user sees)."""
    cost, blocks = record.cost, record.blocks
    if cost is None or blocks is None:
        reason = "no timed block"
        return {
            "samples_per_s": Metric(None, "1/s", "higher", reason, headline=True),
            "tokens_per_s": Metric(None, "1/s", "higher", reason, headline=True),
            "flop_per_s": Metric(None, "FLOP/s", "higher", reason, headline=True),
            "bytes_per_s": Metric(None, "B/s", "higher", reason),
        }
    steps_per_s = blocks.steps_per_block * len(blocks.duration_ns) / (sum(blocks.duration_ns) / 1e9)
    tokens = None if cost.tokens is None else cost.tokens * steps_per_s
    no_tokens = None if tokens is not None else f"{record.case.problem} has no tokens"
    flops = cost.flops * steps_per_s if cost.flops else None
    no_flops = None if flops is not None else f"{record.case.problem} has no FLOPs"
    return {
        "samples_per_s": Metric(cost.samples * steps_per_s, "1/s", "higher", headline=True),
        "tokens_per_s": Metric(tokens, "1/s", "higher", no_tokens, headline=True),
        "flop_per_s": Metric(flops, "FLOP/s", "higher", no_flops, headline=True),
        "bytes_per_s": Metric(cost.bytes * steps_per_s, "B/s", "higher"),
    }
