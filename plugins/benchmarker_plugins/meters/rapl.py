"""Energy of processors and their memory from Linux's RAPL counters (powercap): Intel, and AMD since Zen."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarker import Channel, Domain, Meter, NoMeterError, Reading, Unavailable, hookimpl
from benchmarker_plugins.meters import sysfs

ZONE = re.compile(r"intel-rapl(-mmio)?((?::[0-9a-f]+){1,2})")
UPDATE_MS = 1.0


@hookimpl
def make_meter() -> Meter:
    """Open every package, its memory and the platform, each once, for any device: every case uses the host's power.

    Raises `NoMeterError` if there is no zone, or none that can be read.
    """
    return RaplMeter(sysfs.root() / "class" / "powercap")


class RaplMeter(Meter):
    """Counters of the zones below `class/powercap`.

    `core` and `uncore` are parts of the package and are omitted; `psys` includes the packages. A counter of unknown
    range has no `wraps_at`; when it wraps, it seems to run backwards.
    """

    def __init__(self, folder: Path) -> None:
        sources, unbounded = _zones(folder)
        found, unavailable = sysfs.readable(sources)
        self.channels = [channel for channel, _ in found]
        self.unavailable = [*unavailable, *unbounded]
        self._paths = [path for _, path in found]

    def read(self) -> Sequence[Reading]:
        """Return the current value of each counter, J."""
        return [sysfs.reading(path) for path in self._paths]


def _zones(folder: Path) -> tuple[list[sysfs.Source], list[Unavailable]]:
    """Return each zone once, in the kernel's order, and unknown ranges. Raises `NoMeterError` if there is no zone."""
    load = f"`modprobe intel_rapl_msr` if Linux runs on the physical machine; {sysfs.HIDDEN}"
    names = sysfs.entries(folder, f"only Linux has it, and rarely in a virtual machine or a container; {load}")
    zones = sorted(filter(None, map(ZONE.fullmatch, names)), key=_order)
    if not zones:
        raise NoMeterError("unsupported", f"{folder} has no RAPL zone: {load}")
    if not any(sysfs.word(folder / zone[0] / "name") for zone in zones):
        raise NoMeterError("permission", f"the target of the link {folder / zones[0][0]} is hidden: {sysfs.HIDDEN}")
    sources: dict[str, sysfs.Source] = {}
    unavailable = []
    for zone in zones:
        name, domain = _identify(folder, zone[0])
        if domain is None or name in sources:
            continue
        limit = folder / zone[0] / "max_energy_range_uj"
        range_uj = sysfs.number(limit) or "sentinel"
        if not isinstance(range_uj, int):
            unavailable.append(sysfs.unavailable(f"{name}: wraps_at", range_uj, limit))
        channel = Channel(
            id=name,
            domain=domain,
            quantity="energy_J",
            device=zone[0],
            scope="the platform, as defined by its manufacturer" if domain == "psys" else "",
            wraps_at=(range_uj + 1) / 1e6 if isinstance(range_uj, int) else None,
            update_ms=UPDATE_MS,
        )
        sources[name] = channel, folder / zone[0] / "energy_uj"
    if not sources:
        raise NoMeterError("unsupported", f"{folder} has no RAPL zone for a package, its memory or the platform")
    return list(sources.values()), unavailable


def _order(zone: re.Match[str]) -> tuple[bool, list[int]]:
    """Return the sort key: the hexadecimal numbers of a zone; `-mmio`, which reads the same counters, comes last."""
    return bool(zone[1]), [int(digits, 16) for digits in zone[2][1:].split(":")]


def _identify(folder: Path, zone: str) -> tuple[str, Domain | None]:
    """Return a zone's name, unique in the machine, and its domain, or None for a part of another zone."""
    name = sysfs.word(folder / zone / "name")
    if name.startswith("package-"):
        return name, "package"
    if name.startswith("psys"):
        return name, "psys"
    if name == "dram":
        package = sysfs.word(folder / zone.rpartition(":")[0] / "name")
        return f"dram-{package.removeprefix('package-')}", "dram"
    return name, None
