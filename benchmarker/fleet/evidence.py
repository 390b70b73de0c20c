"""What goes with an unlike node: conditions in the timed part that differ from those of the other nodes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarker.comparing.disturbances import OTHER_BUSY_CORES, PRESSURE_PERCENT, SLOWER_CLOCK, STEAL_PERCENT
from benchmarker.formatting import rounded

if TYPE_CHECKING:
    from benchmarker.fleet.values import Measured

WARMER_C = 5.0
POWER_SHARE = 0.05
"""Differences from the median of the other nodes from which a temperature or a power is mentioned."""
_NOTABLE = {
    "cores busy with other work": OTHER_BUSY_CORES,
    "% stolen by the hypervisor": STEAL_PERCENT,
    "% of the time waiting for a core": PRESSURE_PERCENT,
    "s throttled by its cgroup": 0.0,
}


def evidence(measured: Measured, node: str, case: str) -> list[str]:
    """Return in words which conditions of a node differ in a case from the median of the other nodes."""
    own = _medians(measured, node, case)
    others: dict[str, list[float]] = {}
    for name in measured.nodes:
        if name != node:
            for quantity, value in _medians(measured, name, case).items():
                others.setdefault(quantity, []).append(value)
    found = []
    for quantity, value in own.items():
        usual = median(others[quantity]) if quantity in others else 0.0
        if _is_notable(quantity, value, usual):
            found.append(f"{rounded(value, 3)} {quantity}, others {rounded(usual, 3)}")
    return found


def _is_notable(quantity: str, value: float, usual: float) -> bool:
    if quantity in _NOTABLE:
        return value - usual > _NOTABLE[quantity]
    if quantity.startswith("devices slowed down"):
        return value > usual
    if "°C" in quantity or "temperature" in quantity:
        return abs(value - usual) > WARMER_C
    limit = SLOWER_CLOCK if "MHz" in quantity or "clock" in quantity else POWER_SHARE
    return abs(value - usual) > limit * abs(usual)


def _medians(measured: Measured, node: str, case: str) -> dict[str, float]:
    """Return the median over the trials of a case of each condition; a slowdown that one trial lacks is 0 in it."""
    trials = measured.nodes[node].conditions.get(case, {}).values()
    names = {name for trial in trials for name in trial}
    return {name: median(trial.get(name, 0.0) for trial in trials) for name in sorted(names)}
