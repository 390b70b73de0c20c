"""What a case needs, as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Part, Text
from benchmarker.formatting import clean, count, si

if TYPE_CHECKING:
    from benchmarker.planning.needs import DescribedCase, DeviceMemory, Needs

_INDENT = 12


def case_output(case: DescribedCase) -> Iterator[Part]:
    """Yield the parameters, the work and the memory of a case, and who can compute it."""
    needs = case.needs
    yield Text(f"{needs.title} {needs.precision}", "  ")
    if needs.parameters is not None:
        yield _line("parameters", f"{needs.parameters:,}")
    yield _line("a step", _step(needs))
    yield _line("memory", _memory(needs))
    for device in case.devices:
        yield _line(device.platform, f"{device.name}, {_fit(device)}")
    yield _line("frameworks", ", ".join(name for name, reason in case.frameworks.items() if not reason) or "none")
    for name, reason in case.frameworks.items():
        if reason:
            yield _line("", clean(f"not {name}: {reason}"))


def _line(name: str, text: str) -> Text:
    return Text(f"{name:<{_INDENT}}{text}", " " * _INDENT)


def _step(needs: Needs) -> str:
    tokens = "" if needs.tokens is None else f" ({count(needs.tokens, 'token')})"
    intensity = f", {needs.flops / needs.bytes:.4g} FLOP/byte" if needs.bytes else ""
    return (
        f"{si(needs.flops, 'FLOP')}, at least {si(needs.bytes, 'B')} moved{intensity}; "
        f"{count(needs.samples, 'sample')}{tokens}"
    )


def _memory(needs: Needs) -> str:
    if needs.memory_bytes is None:
        return f"no formula; left out: {needs.left_out}"
    parts = ", ".join(f"{name} {si(size, 'B')}" for name, size in needs.memory.items())
    return f"at least {si(needs.memory_bytes, 'B')}: {parts}; left out: {needs.left_out}"


def _fit(device: DeviceMemory) -> str:
    if device.memory_bytes is None:
        return "whose memory is not known"
    fits = {None: "", True: ": it fits, if what is left out does", False: ": it does NOT fit"}[device.fits]
    return f"{si(device.memory_bytes, 'B')}{fits}"
