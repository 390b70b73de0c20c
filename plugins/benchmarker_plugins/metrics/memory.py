"""Peak memory, on the device and on the host."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the recorded peak bytes, or None with the record's reason."""
    metrics = {}
    for place in ("device_peak_bytes", "host_peak_rss_bytes"):
        value = None if record.memory is None else getattr(record.memory, place)
        reason = record.reasons.get(f"memory.{place}") or record.reasons.get("memory")
        headline = place == "host_peak_rss_bytes" if record.case.device == "cpu" else place == "device_peak_bytes"
        metrics[place] = Metric(value, "B", "lower", None if value is not None else reason, headline)
    return metrics
