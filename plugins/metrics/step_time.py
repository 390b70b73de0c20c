"""Step time: its distribution over the timed blocks, and the first step apart."""

from collections.abc import Mapping

import numpy as np

from benchmarker import Metric, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Median, 5th and 95th percentile and median absolute deviation of a block's mean step time; and `compile_s`."""
    names = ("step_time_median_s", "step_time_p5_s", "step_time_p95_s", "step_time_mad_s")
    metrics: dict[str, Metric] = {}
    if record.blocks is None:
        for name in names:
            metrics[name] = Metric(None, "s", "lower", "no timed block", headline=name == names[0])
    else:
        step_s = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
        p5, median, p95 = np.percentile(step_s, [5, 50, 95])
        mad = np.median(np.abs(step_s - median))
        for name, value in zip(names, (median, p5, p95, mad), strict=True):
            metrics[name] = Metric(float(value), "s", "lower", headline=name == names[0])
    reason = None if record.compile_s is not None else "the first step did not end"
    metrics["compile_s"] = Metric(record.compile_s, "s", "lower", reason, headline=True)
    return metrics
