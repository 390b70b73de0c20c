"""What work costs: the price of a machine by the second, and of the electricity that it takes (docs/procurement.md).

    cost_per_s = price / (lifetime_years * YEAR_S * utilisation) + power_W * pue * electricity_price_per_kWh / J_PER_KWH
    samples_per_cost = samples_per_s / cost_per_s

PUE is the energy of a data centre over that of its IT equipment (ISO/IEC 30134-2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.files import toml

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.record import Record

COST_METRIC = "samples_per_cost"
YEAR_S = 365 * 24 * 3600
J_PER_KWH = 3.6e6


class Inputs(Struct, frozen=True):
    """What one side costs, money in the currency of the file.

    `utilisation` is the share of its lifetime in which the machine works as it was measured; `power_W` stands in
    where no energy was measured.
    """

    price: Annotated[float, Meta(ge=0)]
    lifetime_years: Annotated[float, Meta(gt=0)]
    utilisation: Annotated[float, Meta(gt=0, le=1)]
    electricity_price_per_kWh: Annotated[float, Meta(ge=0)]
    pue: Annotated[float, Meta(ge=1)]
    power_W: Annotated[float, Meta(gt=0)] | None = None

    def per_s(self, power_W: float) -> float:
        """Cost of a second of work, in the currency."""
        machine = self.price / (self.lifetime_years * YEAR_S * self.utilisation)
        return machine + power_W * self.pue * self.electricity_price_per_kWh / J_PER_KWH


class Costs(Struct, frozen=True):
    """What the sides cost, by the name of each."""

    currency: str
    sides: Mapping[str, Inputs]
    path: str = "the cost file"

    def of(self, role: str, name: str) -> Inputs:
        """What a side costs, by its role (`baseline`, `contender`), its name, or what the name ends in after `=`."""
        names = dict.fromkeys((role, name, name.partition("=")[2] or name))
        given = [each for each in names if each in self.sides]
        if not given:
            raise UserError(
                f"{self.path} says nothing of the {role} ({name}); write [side.{role}] or [side.{_key(name)}]"
            )
        if len(given) > 1:
            raise UserError(f"{self.path} names the {role} twice, as {' and '.join(given)}; leave one out")
        return self.sides[given[0]]


def read(path: Path) -> Costs:
    """The costs in a file; keys at its top hold for every side. Raises `UserError` that names the file and the key."""
    found = toml.load(path)
    try:
        if "currency" not in found:
            raise UserError("it needs currency")
        currency = toml.take("currency", found.pop("currency"), Annotated[str, Meta(min_length=1, max_length=20)])
        tables = toml.take("side", found.pop("side", {}), dict[str, dict[str, Any]])
        if not tables:
            raise UserError("it holds no [side.NAME]")
        for key in found:
            if key not in Inputs.__struct_fields__:
                known = ", ".join(("currency", "side", *Inputs.__struct_fields__))
                raise UserError(f"there is no key {key}; there are: {known}")
        sides = {name: toml.take_table(f"side.{_key(name)}", found | table, Inputs) for name, table in tables.items()}
        for name, side in sides.items():
            if side.price == 0 and side.electricity_price_per_kWh == 0:
                raise UserError(
                    f"side.{_key(name)}: price and electricity_price_per_kWh are both 0: nothing costs nothing"
                )
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Costs(currency, sides, str(path))


def _key(name: str) -> str:
    """A key as TOML spells it."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else f'"{name}"'


def mean_power(record: Record) -> float | None:
    """Mean power, W, over the timed window of all that the sensors see of the machine; None where there is none."""
    energy = record.energy
    return energy.total_J / energy.duration_s if energy and energy.total_J and energy.duration_s else None


def with_costs(derive: Derive, inputs: Mapping[str, Inputs], currency: str) -> Derive:
    """Derives `samples_per_cost` too, of trials whose side's costs `inputs` holds by the trial's id."""

    def derived(record: Record) -> dict[str, Metric]:
        metrics = dict(derive(record))
        costs, rate = inputs[record.trial_id], metrics["samples_per_s"]
        power = mean_power(record) or costs.power_W
        value, reason = None, rate.reason
        if rate.value is not None and power is not None:
            value = rate.value / costs.per_s(power)
        elif rate.value is not None:
            why = record.reasons.get("energy") or record.reasons.get("energy.total_J") or "no energy was seen"
            reason = f"{why}; power_W in the cost file can stand in"
        return metrics | {COST_METRIC: Metric(value, f"1/{currency}", "higher", reason)}

    return derived


class Basis(Struct, frozen=True, kw_only=True):
    """What one side's cost rests on: `measured` of its `trials` have a power of their own.

    `used_power_W` is the median over trials of what was used, `cost_per_hour` the cost at that power.
    """

    name: str
    inputs: Inputs
    trials: int
    measured: int
    used_power_W: float | None
    cost_per_hour: float | None


def basis(name: str, inputs: Inputs, records: Sequence[Record]) -> Basis:
    """What the cost of a side's trials that went well rests on."""
    measured = [mean_power(record) for record in records if record.error is None]
    used = [power for each in measured if (power := each or inputs.power_W) is not None]
    power = median(used) if used else None
    return Basis(
        name=name,
        inputs=inputs,
        trials=len(measured),
        measured=sum(each is not None for each in measured),
        used_power_W=power,
        cost_per_hour=None if power is None else inputs.per_s(power) * 3600,
    )


def cost_notes(sides: Sequence[Sequence[Record]]) -> list[str]:
    """Whether the powers that costs go by are of the same parts of a machine everywhere."""
    energies = [record.energy for side in sides for record in side if record.energy and record.energy.total_J]
    parts = sorted({" and ".join(sorted(energy.total_domains)) for energy in energies})
    return [f"the powers are not of the same: some of {', others of '.join(parts)}"] if len(parts) > 1 else []
