"""Diagnostics of a device: how long a launch takes; definitions in docs/problems.md."""

from collections.abc import Mapping
from statistics import median

from benchmarker import Metric, Plot, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the time until the kernels of a step of `launch` are enqueued, the median of several steps."""
    if record.case.problem != "launch":
        return {}
    value = next((median(each.values) for each in record.figures if each.name == "enqueue_s"), None)
    none = None if value is not None else "the trial did not get so far"
    return {"enqueue_s": Metric(value, "s", "lower", none, headline=True, order=1, plot=Plot("time to enqueue"))}
