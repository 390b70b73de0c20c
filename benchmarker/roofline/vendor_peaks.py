"""What the vendor says that a device can do at most: `vendor_peaks.toml`, which names the source of the figures."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.precision import PRECISIONS

Rate = Annotated[float, Meta(gt=0)]
Format = Literal["fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "bf16", "fp16", "int8", "fp8"]
"""A number format; `_matrix`: in the tensor or matrix cores, where the vector units take it too."""


class Peak(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The peaks of a device: dense FLOP/s (int8: operations per second), bytes/s of its memory, and watts.

    `names` are regular expressions, each for the whole of a name that the device goes by. What is not known is left
    out of `flop_per_s`, or None.
    """

    name: str
    names: Annotated[list[str], Meta(min_length=1)]
    flop_per_s: Annotated[Mapping[Format, Rate], Meta(min_length=1)]
    bytes_per_s: Rate | None = None
    tdp_W: Rate | None = None
    source: Annotated[str, Meta(min_length=1)]

    def matches(self, device_name: str) -> bool:
        """Whether the device goes by this name."""
        return any(re.fullmatch(pattern, device_name) for pattern in self.names)

    def products_per_s(self, precision: str) -> float | None:
        """The most FLOP/s in matrix products of a precision of this project, in whichever units; None: not known."""
        compute = PRECISIONS[precision].compute if precision in PRECISIONS else precision
        rates = [rate for name, rate in self.flop_per_s.items() if name.removesuffix("_matrix") == compute]
        return max(rates, default=None)


class _Data(Struct, frozen=True, forbid_unknown_fields=True):
    device: list[Peak]


@cache
def peaks() -> tuple[Peak, ...]:
    """Every device of the data file."""
    text = files("benchmarker.roofline").joinpath("vendor_peaks.toml").read_text("utf-8")
    return tuple(msgspec.convert(tomllib.loads(text), _Data).device)


def peak(device_name: str) -> Peak | None:
    """The peaks of a device by the name that the driver or the framework gives it; None: not known, as of any CPU."""
    return next((each for each in peaks() if each.matches(device_name)), None)
