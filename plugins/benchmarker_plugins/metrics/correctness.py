"""Correctness: the deviation of the outputs from the float64 reference."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the largest relative error (2-norm) of any output, at the small size of the check."""
    check = record.check
    reason = None if check else record.reasons.get("check", "not checked")
    return {"numeric_error": Metric(check.error if check else None, "1", "lower", reason)}
