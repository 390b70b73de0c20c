"""Peak performance as published by vendors, from `vendor_peaks.toml`, which names the source of each figure."""

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.precision import PRECISIONS

Rate = Annotated[float, Meta(gt=0)]
Format = Annotated[str, Meta(pattern=r"^(fp|tf|bf|int)\d+(_matrix)?$")]
"""A number format; `_matrix` means in the tensor or matrix cores, if the vector units support the format too."""


class Peak(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The peaks of a device: dense FLOP/s (int8: operations per second), bytes/s and bytes of its memory, and watts.

    `names` are regular expressions that must match a whole device name. Unknown figures are left out of `flop_per_s`,
    or None.
    """

    name: str
    names: Annotated[list[str], Meta(min_length=1)]
    flop_per_s: Annotated[Mapping[Format, Rate], Meta(min_length=1)]
    bytes_per_s: Rate | None = None
    memory_bytes: Rate | None = None
    tdp_W: Rate | None = None
    source: Annotated[str, Meta(min_length=1)]

    def matches(self, device_name: str) -> bool:
        """Return whether this is a name of the device, as here or as drivers and frameworks report it."""
        return device_name == self.name or any(re.fullmatch(pattern, device_name) for pattern in self.names)

    def products_per_s(self, precision: str) -> float | None:
        """Return the peak FLOP/s of matrix products in a precision, in any unit of the device, or None if unknown.

        Vendors state one for all formats of fp8.
        """
        compute = PRECISIONS[precision].compute if precision in PRECISIONS else precision
        kind = compute.partition("_")[0]
        rates = [rate for name, rate in self.flop_per_s.items() if name.removesuffix("_matrix") == kind]
        return max(rates, default=None)


class Limits(Struct, frozen=True):
    """The largest FLOP/s and bytes/s that devices can reach, and the devices in words."""

    flop_per_s: float
    bytes_per_s: float
    of: str


class _Data(Struct, frozen=True, forbid_unknown_fields=True):
    device: list[Peak]


@cache
def peaks() -> tuple[Peak, ...]:
    """Return every device in the data file."""
    text = files("benchmarker.machine").joinpath("vendor_peaks.toml").read_text("utf-8")
    return tuple(msgspec.convert(tomllib.loads(text), _Data).device)


@lru_cache
def peak(device_name: str) -> Peak | None:
    """Return the peaks of a device by its name in the driver or framework, or None if unknown, as for any CPU."""
    return next((device for device in peaks() if device.matches(device_name)), None)


def limits(device_names: Collection[str]) -> Limits:
    """Return the largest peaks of devices, in any format; of a figure that one of them lacks, that of any device."""
    known = [device for name in device_names if (device := peak(name))]
    are_known = len(known) == len(device_names) > 0
    highest = max(device.bytes_per_s or 0.0 for device in peaks())
    return Limits(
        flop_per_s=max(rate for device in (known if are_known else peaks()) for rate in device.flop_per_s.values()),
        bytes_per_s=max(device.bytes_per_s or highest for device in known) if are_known else highest,
        of=", ".join(device_names) if are_known else "any device that is known",
    )
