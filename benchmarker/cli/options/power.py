"""Options that define which meters are read, how often and for how long."""

from __future__ import annotations

import click

from benchmarker.api.case import Measuring
from benchmarker.cli.options.types import Duration, Number
from benchmarker.power import samplers

_DEFAULT = Measuring()


def _known(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return `--power`; raises `UserError` if a meter is unknown."""
    samplers.meters(value)
    return value


POWER = (
    click.option("--power-nvml", "power", flag_value="nvml", default=_DEFAULT.power, help="Same as --power=nvml."),
    click.option(
        "--power",
        metavar="METER[,METER...]",
        default=_DEFAULT.power,
        show_default=True,
        callback=_known,
        help="Meters to read. auto: all found here; passive: the same without extending the trial; none: no meter.",
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
