"""The options that say which meters are read, how often, and for how long."""

from __future__ import annotations

import click
from click.core import ParameterSource

from benchmarker.api.case import Measuring
from benchmarker.cli.options.types import Number
from benchmarker.power import samplers

_DEFAULT = Measuring()


def _meter(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Keep the meter that a flag of its own names, for `_meters`."""
    if value:
        context.meta.setdefault(__name__, []).append(str(option.name).removeprefix("power_"))


def _meters(context: click.Context, option: click.Parameter, value: str) -> str:
    """The value of `--power`, with the meters that flags of their own name; raises `UserError` for an unknown one."""
    if named := context.meta.pop(__name__, []):
        if context.get_parameter_source("power") is ParameterSource.COMMANDLINE:
            named.insert(0, value)
        context.set_parameter_source("power", ParameterSource.COMMANDLINE)
        value = ",".join(named)
    samplers.meters(value)
    return value


POWER = (
    click.option(
        "--power",
        metavar="METER[,METER...]",
        default=_DEFAULT.power,
        show_default=True,
        callback=_meters,
        help="Meters to read; auto: all that are here. passive is auto too, but does not time longer for it; or none.",
    ),
    click.option(
        "--power-nvml", is_flag=True, expose_value=False, is_eager=True, callback=_meter, help="As --power=nvml."
    ),
    click.option(
        "--power-rapl", is_flag=True, expose_value=False, is_eager=True, callback=_meter, help="As --power=rapl."
    ),
    click.option(
        "--power-hz",
        type=Number(min=0, max=100, min_open=True),
        metavar="HZ",
        default=_DEFAULT.power_hz,
        show_default=True,
        help="How often meters are read.",
    ),
    click.option(
        "--power-min",
        "power_min_s",
        type=Number(min=0),
        metavar="SECONDS",
        default=_DEFAULT.power_min_s,
        show_default=True,
        help="Least timed part, where --power asks for meters and there are any.",
    ),
    click.option(
        "--power-idle",
        "power_idle_s",
        type=Number(min=0),
        metavar="SECONDS",
        default=_DEFAULT.power_idle_s,
        show_default=True,
        help="Rest before each trial, to measure idle power, where --power asks for meters and there are any.",
    ),
)
"""The fields of `Measuring` that begin with `power`, by their names."""
