"""Step time: its distribution over the timed blocks, and separately the first step."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from msgspec import structs

from benchmarker import Metric, Plot, Record, hookimpl

ORDER = {"step_time_median_s": 0, "step_time_mean_s": 1}
PLOT = Plot("step time", predicted="predicted_s", only_predicted=True)


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return median, mean, minimum, percentiles and MAD of the timed blocks' mean step times, and `compile_s`."""
    names = [f"step_time_{name}_s" for name in ("median", "mean", "min", "p5", "p10", "p95", "mad")]
    metrics: dict[str, Metric] = {}
    if record.blocks is None:
        metrics = {name: Metric(None, "s", "lower", record.not_timed, order=ORDER.get(name, 100)) for name in names}
    else:
        step_s = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
        mean = np.add.reduce(step_s) / len(step_s)
        least, p5, p10, median, p95 = _percentiles(step_s, 0, 5, 10, 50, 95)
        (mad,) = _percentiles(np.abs(step_s - median), 50)
        for name, value in zip(names, (median, mean, least, p5, p10, p95, mad), strict=True):
            metrics[name] = Metric(float(value), "s", "lower", order=ORDER.get(name, 100))
    metrics[names[0]] = structs.replace(metrics[names[0]], headline=True, plot=PLOT)
    no_first = record.reasons.get("compile_s") if record.error is None else None
    reason = None if record.compile_s is not None else no_first or "the first step did not complete"
    metrics["compile_s"] = Metric(record.compile_s, "s", "lower", reason, headline=True)
    return metrics


def _percentiles(values: np.ndarray, *percents: float) -> np.ndarray:
    """Return percentiles, interpolated linearly: those of `np.percentile`, which takes ten times as long."""
    found: np.ndarray = np.interp(*_places(percents, len(values)), np.sort(values))
    return found


@lru_cache
def _places(percents: tuple[float, ...], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of percentiles among n sorted values, and those of the values."""
    return np.array(percents) / 100 * (n - 1), np.arange(n)
