"""The cost of work: the price of a machine per second, and of the electricity it uses (docs/procurement.md).

    cost_per_s = price / (lifetime_years * YEAR_S * utilisation) + power_W * pue * electricity_price_per_kWh / J_PER_KWH
    samples_per_cost = samples_per_s / cost_per_s
    cost_per_million_output_tokens = 1e6 * cost_per_s / output_tokens_per_s

PUE is the energy of a data centre divided by that of its IT equipment (ISO/IEC 30134-2).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from benchmarker.api.errors import UserError, concerning
from benchmarker.api.metric import Metric
from benchmarker.files import toml
from benchmarker.hooks.metrics import Derive
from benchmarker.records.record import Record

COST_METRIC = "samples_per_cost"
OUTPUT_COST_METRIC = "cost_per_million_output_tokens"
COST_METRICS = (COST_METRIC, OUTPUT_COST_METRIC)
YEAR_S = 365 * 24 * 3600
J_PER_KWH = 3.6e6


class Inputs(Struct, frozen=True):
    """The cost inputs of one side, in the currency of the file.

    `utilisation` is the share of its lifetime in which the machine works as measured. `power_W` is used if no energy
    was measured.
    """

    price: Annotated[float, Meta(ge=0, le=1e15)]
    lifetime_years: Annotated[float, Meta(ge=0.001, le=1000)]
    utilisation: Annotated[float, Meta(ge=0.001, le=1)]
    electricity_price_per_kWh: Annotated[float, Meta(ge=0, le=1e9)]
    pue: Annotated[float, Meta(ge=1, le=100)]
    power_W: Annotated[float, Meta(ge=0.001, le=1e12)] | None = None

    def per_s(self, power_W: float) -> float:
        """Return the cost of a second of work, in the currency."""
        machine = self.price / (self.lifetime_years * YEAR_S * self.utilisation)
        return machine + power_W * self.pue * self.electricity_price_per_kWh / J_PER_KWH


class Costs(Struct, frozen=True):
    """The cost inputs of the sides, by name."""

    currency: str
    sides: Mapping[str, Inputs]
    path: str = "the cost file"

    def of(self, role: str | None, name: str) -> Inputs:
        """Return the inputs of a side by its role (`baseline`, `contender`), its name, or its name after `=`.

        One of several contenders has no role.

        Raises `UserError` if there is no entry for the side, or several.
        """
        names = dict.fromkeys(filter(None, (role, name, name.partition("=")[2].partition(" execution=")[0])))
        given = [name for name in names if name in self.sides]
        who = f"the {role} ({name})" if role else name
        if not given:
            tables = " or ".join(f"[side.{_key(word)}]" for word in (role, name) if word)
            raise UserError(f"{self.path} has no costs for {who}; add {tables}")
        if len(given) > 1:
            raise UserError(f"{self.path} names {who} twice, as {' and '.join(given)}; leave one out")
        return self.sides[given[0]]


def read(path: Path, called: Mapping[str, str] = MappingProxyType({})) -> Costs:
    """Read the costs in a file; top-level keys apply to every side. `called` has the names of sides by their paths.

    Raises `UserError` naming the file and the key if the file is not valid.
    """
    document = toml.load(path)
    with concerning(path):
        if "currency" not in document:
            raise UserError("it needs currency")
        currency = toml.take("currency", document.pop("currency"), Annotated[str, Meta(min_length=1, max_length=20)])
        tables = toml.take("side", document.pop("side", {}), dict[str, dict[str, Any]])
        if not tables:
            raise UserError("it has no table [side.NAME]")
        for key in document:
            if key not in Inputs.__struct_fields__:
                known = ", ".join(("currency", "side", *Inputs.__struct_fields__))
                raise UserError(f"there is no key {key}; there are: {known}")
        sides = {
            name: toml.take_table(f"side.{_key(name)}", document | table, Inputs) for name, table in tables.items()
        }
        for name, side in sides.items():
            if side.price == 0 and side.electricity_price_per_kWh == 0:
                raise UserError(
                    f"side.{_key(name)}: price and electricity_price_per_kWh are both 0; set at least one of them"
                )
        named = {called.get(name, name): side for name, side in sides.items()}
        if len(named) < len(sides):
            raise UserError(f"two of the tables {', '.join(f'[side.{_key(name)}]' for name in sides)} are of one side")
    return Costs(currency, named, str(path))


def _key(name: str) -> str:
    """Return a key in TOML syntax."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else f'"{name}"'


def mean_power(record: Record) -> float | None:
    """Return the mean power, W, of everything measured by the sensors over the timed window; None if not measured."""
    energy = record.energy
    return energy.total_J / energy.duration_s if energy and energy.total_J and energy.duration_s else None


def with_costs(derive: Derive, inputs: Mapping[str, Inputs], currency: str) -> Derive:
    """Extend `derive` by `COST_METRICS`; `inputs` holds the costs of each trial's side by the trial's id."""

    def derived(record: Record) -> dict[str, Metric]:
        metrics = dict(derive(record))
        costs, samples, tokens = inputs[record.trial_id], metrics["samples_per_s"], metrics["output_tokens_per_s"]
        power = mean_power(record) or costs.power_W
        per_s = None if power is None else costs.per_s(power)
        why = record.reasons.get("energy") or record.reasons.get("energy.total_J") or "no energy was measured"
        no_power = None if per_s else f"{why}; set power_W in the cost file to use a fixed power"
        per_cost = samples.value / per_s if samples.value is not None and per_s else None
        of_tokens = 1e6 * per_s / tokens.value if tokens.value and per_s else None
        return metrics | {
            COST_METRIC: Metric(per_cost, f"1/{currency}", "higher", samples.reason or no_power),
            OUTPUT_COST_METRIC: Metric(of_tokens, currency, "lower", tokens.reason or no_power),
        }

    return derived


class Basis(Struct, frozen=True, kw_only=True):
    """The basis of one side's cost: in `measured` of its `trials` the power was measured.

    `used_power_W` is the median over trials of the power used, `cost_per_hour` the cost at that power.
    """

    name: str
    inputs: Inputs
    trials: int
    measured: int
    used_power_W: float | None
    cost_per_hour: float | None


def basis(name: str, inputs: Inputs, records: Sequence[Record]) -> Basis:
    """Return the basis of the cost of a side, from its successful trials."""
    measured = [mean_power(record) for record in records if record.error is None]
    used = [power for own_W in measured if (power := own_W or inputs.power_W) is not None]
    power = median(used) if used else None
    return Basis(
        name=name,
        inputs=inputs,
        trials=len(measured),
        measured=sum(own_W is not None for own_W in measured),
        used_power_W=power,
        cost_per_hour=None if power is None else inputs.per_s(power) * 3600,
    )


def cost_notes(sides: Sequence[Sequence[Record]]) -> list[str]:
    """Report if the measured powers cover different parts of the machines."""
    energies = [record.energy for side in sides for record in side if record.energy and record.energy.total_J]
    parts = sorted({" and ".join(sorted(energy.total_domains)) for energy in energies})
    return (
        [f"the powers cover different parts of the machine: some {', others '.join(parts)}"] if len(parts) > 1 else []
    )
