"""`benchmarker power`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from typing import Any

import click
import msgspec
from rich import text as rich_text
from rich.live import Live

from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel
from benchmarker.cli.display.output import Output, View, console, output_options, print_json_line
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.types import Duration
from benchmarker.display.machine import HEADINGS, amount
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, si
from benchmarker.power import samplers
from benchmarker.power.live import Now, Sensor, sensors, take
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.sampler_client import SamplerClient
from benchmarker.power.samplers import Sampling
from benchmarker.tables.table import NOTHING, Cell, Column, Filled, Table, cell_text, number
from benchmarker.tables.terminal import lines

APART_S = 0.5
"""Time between the two readings that turn an energy counter into a mean power."""
LOOK_S = 0.1
"""Sampling period of --watch; it shows the readings every `SHOW_S`."""
SHOW_S = 1.0
FORGET_S = 60.0
"""How often --watch discards what the samplers have written."""
_RARE_HZ = 0.01
"""So low that the samplers practically read only on request."""


@click.command("power")
@click.option(
    "--power", metavar="METER[,METER...]", default=samplers.AUTO, help="Meters to query; auto: all that are registered."
)
@click.option("--watch", is_flag=True, help="Update the readings every second until Ctrl-C.")
@click.option("--seconds", type=Duration(min=0, min_open=True), help="End --watch after this time: 30, 90s, 10m.")
@output_options()
def command(power: str, watch: bool, seconds: float | None, view: View) -> Output:
    """Show the power sensors found here, their current readings, and why others cannot be read.

    For a sensor that only counts energy, the power shown is the mean over half a second (with --watch: over the last
    second); for other sensors it is the reading itself. With --watch, energy, mean and peak cover the time since the
    start: energy and mean come from the energy counter if there is one, the peak from the power readings. Cards hidden
    by CUDA_VISIBLE_DEVICES are not shown. Each meter uses its own order of cards, which may differ from a framework's.
    """
    if seconds is not None and not watch:
        raise UserError("--seconds needs --watch; give both")
    names = samplers.meters(power)
    with _sampled(names) as (running, client):
        several = sensors(running.probes)
        if watch and several:
            _watch(several, client, running, seconds, as_json=view.form == "json")
            return Output()
        if several:
            with working("reading the sensors"):
                take(several, client.mark("look"))
                time.sleep(APART_S)
                take(several, client.mark("look"))
    if watch and view.form == "json":
        click.echo("benchmarker: no power sensor is available here", err=True)
        return Output()
    return Output(_output(several, running.probes), partial(_plain, several, running.probes))


@contextmanager
def _sampled(names: Sequence[str]) -> Iterator[tuple[Sampling, SamplerClient]]:
    """Start samplers of the meters that read only on request."""
    with ExitStack() as stack:
        with working(f"querying {', '.join(names)}"):
            running = stack.enter_context(samplers.Sampling(names, None, _RARE_HZ, {}))
        yield running, stack.enter_context(closing(SamplerClient(running.links())))


def _watch(
    several: Sequence[Sensor], client: SamplerClient, running: Sampling, seconds: float | None, *, as_json: bool
) -> None:
    """Read and show until interrupted, the time is over, or no meter responds any more."""
    shown = console()
    live = Live(console=shown, auto_refresh=False) if shown.is_terminal and not as_json else None
    start = time.monotonic()
    end = start + seconds if seconds is not None else None
    show, forget = start + SHOW_S, start + FORGET_S
    with live or nullcontext():
        try:
            while True:
                samples = client.mark("look")
                take(several, samples)
                now = time.monotonic()
                over = not samples or (end is not None and now >= end)
                if now >= show or over:
                    _show([sensor.now() for sensor in several], now - start, live, as_json)
                    show = max(show + SHOW_S, now)
                if over:
                    break
                if now >= forget:
                    running.forget()
                    forget = now + FORGET_S
                time.sleep(max(0.0, min(LOOK_S, (end or now + LOOK_S) - now)))
        except KeyboardInterrupt:
            return
    if not samples:
        click.echo("benchmarker: no meter responds any more", err=True)


_STATE = ("temperature_C", "sm_clock_MHz", "utilisation_percent")
_NOW = (
    number("now_W", "W"),
    number("mean_W", "W"),
    number("peak_W", "W"),
    number("energy_J", "J"),
    *(number(name, heading=HEADINGS[name], form=partial(amount, name)) for name in _STATE),
    Column("throttled by"),
    Column("trouble", levels=("",)),
)
"""What is read from a sensor, then its problems."""
_SINCE_START = (1, 2, 3)
"""Places of what only --watch shows."""
_DROPPED = [
    "id",
    *(HEADINGS[name] for name in ("sm_clock_MHz", "utilisation_percent", "temperature_C")),
    "device",
    "mean",
]
"""Columns that a narrow terminal does not show, the least important first."""


def _cells(now: Now) -> list[Cell]:
    """Return the readings of a sensor in the order of `_NOW`."""
    readings = (now.power_W, now.mean_W, now.peak_W, now.energy_J, *(getattr(now, name) for name in _STATE))
    return [*readings, ", ".join(now.throttle) or NOTHING, ", ".join(now.trouble)]


def _show(several: Sequence[Now], elapsed_s: float, live: Live | None, as_json: bool) -> None:
    """Show the current readings of the sensors."""
    if live:
        rows = [[reading.sensor, *_cells(reading)] for reading in several]
        made = lines(Table.of(["sensor", *_NOW], rows, drop=_DROPPED), live.console.width)
        shown = [*made.headings, *made.rows, f"{elapsed_s:.0f} s; press Ctrl-C to stop"]
        live.update(rich_text.Text("\n".join(shown)), refresh=True)
        return
    for reading in several:
        if as_json:
            print_json_line({"elapsed_s": elapsed_s, **msgspec.to_builtins(reading)})
            continue
        texts = zip(_NOW, map(cell_text, _cells(reading), _NOW), strict=True)
        known = [f"{column.heading} {text}".strip() for column, text in texts if text != "-"]
        click.echo(clean("  ".join([f"{elapsed_s:.1f} s", reading.sensor, *known])).rstrip())


def _plain(several: Sequence[Sensor], probes: Mapping[str, MeterProbe]) -> dict[str, Any]:
    """Return the sensors with all their channels, and what is unavailable, as JSON values."""
    return {
        "sensors": [
            {
                "meter": sensor.meter,
                "id": sensor.first.id,
                "domain": sensor.first.domain,
                "device": sensor.first.device,
                "pci": sensor.first.pci,
                "scope": sensor.first.scope,
                "shared": sensor.first.shared,
                "power_W": sensor.now().power_W,
                "channels": [_channel(channel, sensor.values.get(at)) for at, channel in sensor.channels.items()],
            }
            for sensor in several
        ],
        "unavailable": [
            {"meter": meter, "what": missing.what, "reason": missing.reason, "message": missing.message}
            for meter, probe in probes.items()
            for missing in probe.unavailable
        ],
    }


def _channel(channel: Channel, value: float | str | None) -> dict[str, Any]:
    words = [word for bit, word in channel.bits.items() if isinstance(value, float) and int(value) & bit]
    return {
        "quantity": channel.quantity,
        "what": channel.what,
        "value": value if isinstance(value, float) else None,
        "reason": value if isinstance(value, str) else "",
        **({"words": list(dict.fromkeys(words))} if channel.bits else {}),
        "update_ms": channel.update_ms,
        "window_ms": channel.window_ms,
        "accuracy_percent": channel.accuracy_percent,
        "wraps_at": channel.wraps_at,
    }


def _output(several: Sequence[Sensor], probes: Mapping[str, MeterProbe]) -> Iterator[Part]:
    """Yield the current readings, what is read from each sensor, and what cannot be read."""
    if several:
        yield _now(several)
        yield ""
        yield Table.of(["sensor", "what is read", "as documented"], _read(several))
    else:
        yield "No power sensor is available here." if probes else "No meter was queried."
    remarks = {
        sensor.name: sensor.first.scope + ("; a case may cause only part of it" if sensor.first.shared else "")
        for sensor in several
        if sensor.first.scope
    }
    for name, scope in remarks.items():
        yield Text(f"{name} covers {scope}", "  ")
    unavailable = [[meter, missing.text] for meter, probe in probes.items() for missing in probe.unavailable]
    if unavailable:
        yield "\nUnavailable, and why:"
        yield Table.facts(unavailable)


def _now(several: Sequence[Sensor]) -> Table:
    """Return a row per sensor, without empty columns."""
    readings = [_cells(sensor.now()) for sensor in several]
    filled: list[Filled] = [
        (Column("sensor"), [sensor.name for sensor in several]),
        (Column("id"), [sensor.first.id if sensor.first.pci else NOTHING for sensor in several]),
        (Column("device"), [sensor.first.device or NOTHING for sensor in several]),
        *((column, [row[at] for row in readings]) for at, column in enumerate(_NOW) if at not in _SINCE_START),
    ]
    known = [(column, cells) for column, cells in filled if any(cell not in (None, "", NOTHING) for cell in cells)]
    return Table.of_columns(known, drop=_DROPPED)


def _read(several: Sequence[Sensor]) -> list[list[str]]:
    """Return what is read from the sensors, a row per quantity; sensors with the same quantity and data share a row."""
    alike: dict[tuple[str, str], list[str]] = {}
    for sensor in several:
        quantities: dict[tuple[str, str], list[str]] = {}
        for channel in sensor.channels.values():
            quantities.setdefault((channel.quantity, _documented(channel)), []).append(channel.what)
        for (quantity, documented), what in quantities.items():
            words = ", ".join(filter(None, what))
            alike.setdefault((f"{quantity} ({words})" if words else quantity, documented), []).append(sensor.name)
    return [[_several(names), line, documented] for (line, documented), names in alike.items()]


def _several(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _documented(channel: Channel) -> str:
    """Return the documented properties of a channel as text."""
    said = {
        f"updated every {channel.update_ms or 0:g} ms": channel.update_ms,
        f"mean over {channel.window_ms or 0:g} ms": channel.window_ms,
        f"±{channel.accuracy_percent or 0:g}%": channel.accuracy_percent,
        f"wraps at {si(channel.wraps_at, 'J')}": channel.wraps_at,
    }
    return ", ".join(text for text, known in said.items() if known is not None) or "-"
