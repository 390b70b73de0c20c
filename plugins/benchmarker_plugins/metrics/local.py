"""Several devices: what keeps them from scaling, from the local phase; definitions in docs/devices.md."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl, local_times


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the factors of the efficiency that one record shows, and the straggler score of the slowest device."""
    times = local_times(record)
    why = None if times else record.reasons.get("local", "it has no local phase")
    values: dict[str, float | None] = dict.fromkeys(("contention", "imbalance", "communication", "straggler_score"))
    if times:
        values |= {name: getattr(times, name) for name in ("contention", "imbalance", "communication")}
        values["straggler_score"] = min(times.scores)
    reasons = dict.fromkeys(values, why)
    if times and record.case.independent:
        values["communication"], reasons["communication"] = None, "the devices compute independently"
    return {name: Metric(value, "1", "higher", reasons[name]) for name, value in values.items()}
