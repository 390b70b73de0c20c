"""Diagnostics: how long a launch and a load take, and how fast a transfer is; definitions in docs/problems.md."""

from collections.abc import Mapping
from statistics import median

from benchmarker import Metric, Plot, Record, hookimpl

_WITHIN_HOST = "the device is the host: its memory is copied to itself, which is copy_bytes_per_s"
_BETWEEN = "the copy is between host and device: transfer_bytes_per_s"


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the metrics of `launch`, `transfer` and `latency`; other problems have none of them."""
    derive = {"launch": _of_launch, "transfer": _of_transfer, "latency": _of_latency}.get(record.case.problem)
    return derive(record) if derive else {}


def _of_launch(record: Record) -> Mapping[str, Metric]:
    """Return the time until the kernels of a step are enqueued, the median of several steps."""
    value = next((median(each.values) for each in record.figures if each.name == "enqueue_s"), None)
    none = None if value is not None else "the trial did not get so far"
    return {"enqueue_s": Metric(value, "s", "lower", none, headline=True, order=1, plot=Plot("time to enqueue"))}


def _of_transfer(record: Record) -> Mapping[str, Metric]:
    """Return the bytes that cross between host and device in a second, both ways; on a CPU, those that are copied.

    That is half of what the cost counts, which is read and written.
    """
    value: float | None = None
    none: str | None = record.not_timed
    if record.blocks and record.cost and record.cost.bytes:
        steps_per_s = (
            record.blocks.steps_per_block * len(record.blocks.duration_ns) * 1e9 / sum(record.blocks.duration_ns)
        )
        value, none = record.cost.bytes / 2 * steps_per_s, None
    names = {"transfer_bytes_per_s": ("transfer", _WITHIN_HOST), "copy_bytes_per_s": ("copy within memory", _BETWEEN)}
    own = "copy_bytes_per_s" if record.case.device == "cpu" else "transfer_bytes_per_s"
    return {
        name: Metric(value, "B/s", "higher", none, headline=True, order=1, plot=Plot(title))
        if name == own
        else Metric(None, "B/s", "higher", other, headline=True)
        for name, (title, other) in names.items()
    }


def _of_latency(record: Record) -> Mapping[str, Metric]:
    """Return the time of a load: the median step time, over the loads of a step."""
    value: float | None = None
    none: str | None = record.not_timed
    if record.blocks:
        loads = record.blocks.steps_per_block * int(record.case.params["loads"])
        value, none = median(record.blocks.duration_ns) / loads / 1e9, None
    return {"load_latency_s": Metric(value, "s", "lower", none, headline=True, order=1, plot=Plot("latency of a load"))}
