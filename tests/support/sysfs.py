"""Trees as Linux shows them in /sys, below any folder: powercap zones and hwmon chips."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

RANGE_UJ = 262143328850
"""Highest number of the counters: what Intel's Xeons say."""


def powercap(root: Path, zones: Mapping[str, str]) -> None:
    """Zones by name (`intel-rapl:0:1`) with what each calls itself (`dram`); counters stand at zero."""
    for zone, name in zones.items():
        control_type, *numbers = zone.split(":")
        steps = [":".join([control_type, *numbers[:depth]]) for depth in range(len(numbers) + 1)]
        folder = root.joinpath("devices", "virtual", "powercap", *steps)
        folder.mkdir(parents=True)
        _write(folder, {"name": name, "energy_uj": 0, "max_energy_range_uj": RANGE_UJ, "enabled": 1})
        (folder / "device").symlink_to(f"../../{steps[-2]}")
        for linked in (folder, folder.parents[len(numbers) - 1]):
            _link(root, "powercap", linked)


def zone_file(root: Path, zone: str, name: str = "energy_uj") -> Path:
    """A file of a zone."""
    return root / "class" / "powercap" / zone / name


def power_meter(root: Path, number: int, files: Mapping[str, object], *, in_chip: bool = False) -> Path:
    """ACPI power meter as chip `number`, with `power1_*` files by their ends; in its device's folder, or its own."""
    device = root / "devices" / "LNXSYSTM:00" / f"ACPI000D:0{number}"
    folder = chip(root, number, "", {}, device)
    place = folder if in_chip else device
    _write(place, {"name": "power_meter", **{f"power1_{end}": value for end, value in files.items()}})
    return place


def chip(root: Path, number: int, driver: str, files: Mapping[str, object], device: Path | None = None) -> Path:
    """Chip `number` with a driver's name and files; returns its folder."""
    device = device or root / "devices" / "platform" / f"{driver}.0"
    folder = device / "hwmon" / f"hwmon{number}"
    folder.mkdir(parents=True)
    _write(folder, {"name": driver, **files} if driver else files)
    (folder / "device").symlink_to(f"../../../{device.name}")
    _link(root, "hwmon", folder)
    return folder


def deny(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let these files be opened by nobody: root, too, whom a file's mode does not stop."""
    denied, opened = set(map(str, paths)), os.open

    def open_(path: str | Path, flags: int, *rest: int, **options: int | None) -> int:
        if str(path) in denied:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", open_)


def _write(folder: Path, files: Mapping[str, object]) -> None:
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def _link(root: Path, kind: str, folder: Path) -> None:
    link = root / "class" / kind / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", folder.relative_to(root)))
