"""Event counters: what is counted in a step, instructions per cycle, and an estimate of the bytes from memory."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl

LINE_BYTES = 64
"""Bytes of a cache line, of nearly all processors with x86-64, ARM64 and RISC-V; 128 of POWER, 256 of A64FX."""


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the counts of all timed blocks divided by their steps, of the counters that the case asks for.

    `estimated_memory_bytes_per_step` is 64 bytes for each read that missed the last-level cache. It is too low: lines
    that are prefetched by hardware or written back are not among the misses.
    """
    names = [name.strip() for name in record.case.measuring.counters.split(",") if name.strip() not in ("", "none")]
    counts = {each.name: each.count for each in record.counters}
    reasons = {each.name: record.reasons.get(f"counters[{at}].count") for at, each in enumerate(record.counters)}
    steps = record.blocks.steps_per_block * len(record.blocks.duration_ns) if record.blocks else 0

    def metric(of: str, unit: str = "1", factor: float = 1.0) -> Metric:
        count = counts.get(of)
        if count is None or not steps:
            return Metric(None, unit, "lower", reasons.get(of) or "the trial failed before it was counted")
        return Metric(count / steps * factor, unit, "lower", headline=True, order=1)

    metrics = {f"{name}_per_step": metric(name) for name in names if name != "task_clock"}
    if "task_clock" in names:
        metrics["task_clock_per_step_s"] = metric("task_clock", "s", 1e-9)
    if "llc_misses" in names:
        metrics["estimated_memory_bytes_per_step"] = metric("llc_misses", "B", LINE_BYTES)
    if {"instructions", "cycles"} <= {*names}:
        cycles, instructions = metrics["cycles_per_step"], metrics["instructions_per_step"]
        value = instructions.value / cycles.value if instructions.value is not None and cycles.value else None
        why = instructions.reason or cycles.reason or (None if value else "no cycle was counted")
        metrics["instructions_per_cycle"] = Metric(value, "1", "higher", why, headline=value is not None, order=1)
    return metrics
