"""`benchmarker power`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.live import Live

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import console, json_option, make_table, print_json, print_json_line, print_table
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.sensors import HEADINGS, amount
from benchmarker.cli.options.types import Number
from benchmarker.formatting import clean, si
from benchmarker.power import samplers
from benchmarker.power.live import Sensor, sensors, take
from benchmarker.power.window import Edges

if TYPE_CHECKING:
    from benchmarker.api.meter import Channel
    from benchmarker.power.live import Now
    from benchmarker.power.sampler import Found
    from benchmarker.power.samplers import Sampling

APART_S = 0.5
"""Between the two looks that make a mean power of a counter."""
LOOK_S = 0.1
"""How often --watch looks; what it saw it shows every `SHOW_S`."""
SHOW_S = 1.0
FORGET_S = 60.0
"""How often --watch drops what the samplers have written."""
_RARE_HZ = 0.01
"""The samplers read when they are asked, and hardly of themselves."""


@click.command("power", short_help="Show the sensors of power here.")
@click.option(
    "--power",
    metavar="METER[,METER...]",
    default=samplers.AUTO,
    show_default=True,
    help="Meters to ask; auto: all that are registered.",
)
@click.option("--watch", is_flag=True, help="Go on showing what they read, each second, until Ctrl-C.")
@click.option("--seconds", type=Number(min=0, min_open=True), metavar="N", help="End --watch after so many seconds.")
@json_option
def command(power: str, watch: bool, seconds: float | None, as_json: bool) -> int:
    """Show the sensors that the meters find here, what they read now, and why others cannot be read.

    The power of a sensor that only counts energy is its mean over half a second, with --watch over the last second; of
    others it is what they read. Energy, mean and peak are those since --watch began: energy and mean by the counter
    where there is one, the peak of what was read. The cards that CUDA_VISIBLE_DEVICES hides are not shown; the order is
    each meter's own, and a framework may count them in another.
    """
    if seconds is not None and not watch:
        raise UserError("--seconds ends --watch; give both")
    names = samplers.meters(power)
    with _sampled(names) as (running, edges):
        several = sensors(running.found)
        if watch and several:
            _watch(several, edges, running, seconds, as_json)
            return 0
        if several:
            with working("reading the sensors"):
                take(several, edges.mark("look"))
                time.sleep(APART_S)
                take(several, edges.mark("look"))
    if not as_json:
        _print(several, running.found)
    elif watch:
        click.echo("benchmarker: no sensor of power can be read here", err=True)
    else:
        print_json(_plain(several, running.found))
    return 0


@contextmanager
def _sampled(names: Sequence[str]) -> Iterator[tuple[Sampling, Edges]]:
    """Samplers of meters, that read when they are asked."""
    with ExitStack() as stack:
        with working(f"asking {', '.join(names)}"):
            running = stack.enter_context(samplers.Sampling(names, None, _RARE_HZ, {}))
        yield running, stack.enter_context(closing(Edges(running.lines())))


def _watch(several: Sequence[Sensor], edges: Edges, running: Sampling, seconds: float | None, as_json: bool) -> None:
    """Look and show until it is interrupted, or the time is over, or no meter answers any more."""
    shown = console()
    live = Live(console=shown, auto_refresh=False) if shown.is_terminal and not as_json else None
    start = time.monotonic()
    end = start + seconds if seconds is not None else None
    show, forget = start + SHOW_S, start + FORGET_S
    with live or nullcontext():
        try:
            while True:
                samples = edges.mark("look")
                take(several, samples)
                now = time.monotonic()
                over = not samples or (end is not None and now >= end)
                if now >= show or over:
                    _show([each.now() for each in several], now - start, live, as_json)
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
        click.echo("benchmarker: no meter answers any more", err=True)


_WATCHED = ["now", "mean", "peak", "energy", *(HEADINGS[name] for name in ("temperature_C", "sm_clock_MHz"))]
_WATCHED += [HEADINGS["utilisation_percent"], "held down by"]


def _cells(now: Now) -> list[str]:
    """What a sensor reads, by the headings of `_WATCHED`; then what is wrong with it."""
    powers = [si(value, "W") for value in (now.power_W, now.mean_W, now.peak_W)]
    state = [amount(name, getattr(now, name)) for name in ("temperature_C", "sm_clock_MHz", "utilisation_percent")]
    return [*powers, si(now.energy_J, "J"), *state, ", ".join(now.throttle) or "-", ", ".join(now.trouble)]


def _show(several: Sequence[Now], elapsed_s: float, live: Live | None, as_json: bool) -> None:
    """Show what the sensors read now."""
    if live:
        rows = [[each.sensor, *_cells(each)] for each in several]
        table = make_table(["sensor", *_WATCHED, ""], rows)
        table.caption, table.caption_justify = f"{elapsed_s:.0f} s; Ctrl-C ends it", "left"
        live.update(table, refresh=True)
        return
    for each in several:
        if as_json:
            print_json_line({"elapsed_s": elapsed_s, **msgspec.to_builtins(each)})
            continue
        *cells, trouble = _cells(each)
        known = [f"{name} {cell}" for name, cell in zip(_WATCHED, cells, strict=True) if cell != "-"]
        click.echo(clean("  ".join([f"{elapsed_s:.1f} s", each.sensor, *known, trouble])).rstrip())


def _plain(several: Sequence[Sensor], found: Mapping[str, Found]) -> dict[str, Any]:
    """Sensors with all their channels, and what is unavailable, as JSON has them."""
    return {
        "sensors": [
            {
                "meter": each.meter,
                "id": each.first.id,
                "domain": each.first.domain,
                "device": each.first.device,
                "pci": each.first.pci,
                "scope": each.first.scope,
                "shared": each.first.shared,
                "power_W": each.now().power_W,
                "channels": [_channel(channel, each.values.get(at)) for at, channel in each.channels.items()],
            }
            for each in several
        ],
        "unavailable": [
            {"meter": meter, "what": missing.what, "reason": missing.reason, "message": missing.message}
            for meter, each in found.items()
            for missing in each.unavailable
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


def _print(several: Sequence[Sensor], found: Mapping[str, Found]) -> None:
    """What there is now, how it is read, and what cannot be."""
    if several:
        _print_now(several)
        click.echo()
        print_table(["sensor", "what is read", "as documented"], _read(several))
    else:
        click.echo("No sensor of power can be read here." if found else "No meter was asked.")
    remarks = {
        each.name: each.first.scope + ("; a case may have only a part of it" if each.first.shared else "")
        for each in several
        if each.first.scope
    }
    for name, scope in remarks.items():
        click.echo(clean(f"{name} sees {scope}"))
    unavailable = [[meter, missing.text] for meter, each in found.items() for missing in each.unavailable]
    if unavailable:
        click.echo("\nWhat cannot be read, and why:")
        print_table(None, unavailable)


def _print_now(several: Sequence[Sensor]) -> None:
    """A row a sensor; what none of them has is not shown."""
    headings = ["sensor", "id", "device", *_WATCHED[:1], *_WATCHED[4:], ""]
    rows = []
    for each in several:
        power, _, _, _, *rest = _cells(each.now())
        of_card = each.first.id if each.first.pci else "-"
        rows.append([each.name, of_card, each.first.device or "-", power, *rest])
    print_table(*_known(headings, rows))


def _known(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without the columns in which no row has anything."""
    kept = [at for at in range(len(headings)) if any(row[at] not in ("-", "") for row in rows)]
    return [headings[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _read(several: Sequence[Sensor]) -> list[list[str]]:
    """What is read of sensors, a row a quantity; those that are read alike share it."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in several:
        quantities: dict[tuple[str, str], list[str]] = {}
        for channel in each.channels.values():
            quantities.setdefault((channel.quantity, _documented(channel)), []).append(channel.what)
        for (quantity, documented), what in quantities.items():
            words = ", ".join(filter(None, what))
            alike.setdefault((f"{quantity} ({words})" if words else quantity, documented), []).append(each.name)
    return [[_several(names), line, documented] for (line, documented), names in alike.items()]


def _several(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _documented(channel: Channel) -> str:
    """What the documentation of a sensor says of it."""
    said = {
        f"new every {channel.update_ms or 0:g} ms": channel.update_ms,
        f"mean of {channel.window_ms or 0:g} ms": channel.window_ms,
        f"±{channel.accuracy_percent or 0:g}%": channel.accuracy_percent,
        f"wraps at {si(channel.wraps_at, 'J')}": channel.wraps_at,
    }
    return ", ".join(text for text, known in said.items() if known is not None) or "-"
