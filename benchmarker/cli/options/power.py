"""Options that define which meters are read, how often and for how long."""

from __future__ import annotations

import click
from click.core import ParameterSource

from benchmarker.api.case import Measuring
from benchmarker.cli.options.types import Duration, Number
from benchmarker.power import samplers

_DEFAULT = Measuring()


def _meter(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Remember the meter of a flag such as `--power-nvml` for `_meters`."""
    if value:
        context.meta.setdefault(__name__, []).append(str(option.name).removeprefix("power_"))


def _meters(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return `--power` with the meters of flags added; raises `UserError` if a meter is unknown."""
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
        help="Meters to read. auto: all found here; passive: the same without extending the trial; none: no meter.",
    ),
    click.option(
        "--power-nvml", is_flag=True, expose_value=False, is_eager=True, callback=_meter, help="Same as --power=nvml."
    ),
    click.option(
        "--power-rapl", is_flag=True, expose_value=False, is_eager=True, callback=_meter, help="Same as --power=rapl."
    ),
    click.option(
        "--power-hz",
        type=Number(min=0, max=100, min_open=True),
        metavar="HZ",
        default=_DEFAULT.power_hz,
        show_default=True,
        help="Sampling rate of the meters.",
    ),
    click.option(
        "--power-min",
        "power_min_s",
        type=Duration(min=0),
        default=f"{_DEFAULT.power_min_s:g}s",
        show_default=True,
        help="Minimum duration of the timed part if --power is auto or names meters, and one is found.",
    ),
    click.option(
        "--power-idle",
        "power_idle_s",
        type=Duration(min=0),
        default=f"{_DEFAULT.power_idle_s:g}s",
        show_default=True,
        help="Idle time before each trial, to measure idle power; under the same condition.",
    ),
)
"""Options for the fields of `Measuring` whose names begin with `power`."""
