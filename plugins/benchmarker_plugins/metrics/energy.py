"""Energy: work per joule and joules per step, of the device that ran the case."""

from collections.abc import Mapping

from benchmarker import Metric, Record, hookimpl


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the energy of the timed window, work per energy (gross), and powers; null with the record's reason."""
    energy, cost = record.energy, record.cost
    joules = None if energy is None else energy.energy_J
    reason = record.reasons.get("energy") or record.reasons.get("energy.energy_J")
    if joules is not None and joules <= 0:
        joules, reason = None, "the window has no energy"
    steps = energy.steps if energy else 0
    power = joules / energy.duration_s if energy and joules is not None and energy.duration_s else None

    def per_joule(work: int | None) -> float | None:
        return None if joules is None or work is None else work * steps / joules

    samples, tokens, flops = (cost.samples, cost.tokens, cost.flops) if cost else (None, None, None)
    no_tokens = f"{record.case.problem} has no tokens" if cost is not None and tokens is None else None
    no_flops = record.reasons.get("cost.flops") if cost is not None else None
    per_step = joules / steps if joules is not None and steps else None
    total, idle = (energy.total_J, energy.idle_W) if energy else (None, None)
    return {
        "samples_per_J": Metric(per_joule(samples), "1/J", "higher", reason, headline=joules is not None, scored=True),
        "tokens_per_J": Metric(per_joule(tokens), "1/J", "higher", reason or no_tokens),
        "flop_per_J": Metric(per_joule(flops), "FLOP/J", "higher", reason or no_flops),
        "energy_per_step_J": Metric(per_step, "J", "lower", reason),
        "energy_J": Metric(joules, "J", "lower", reason),
        "total_energy_J": Metric(total, "J", "lower", _why(record, total, "total_J")),
        "idle_power_W": Metric(idle, "W", "lower", _why(record, idle, "idle_W")),
        "mean_power_W": Metric(power, "W", "lower", reason, headline=joules is not None),
    }


def _why(record: Record, value: float | None, name: str) -> str | None:
    if value is not None:
        return None
    return record.reasons.get("energy") or record.reasons.get(f"energy.{name}")
