"""Power of boards, from Linux's hwmon: ACPI power meters (including NVIDIA Grace's) and amd_energy."""

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarker import Channel, Domain, Meter, NoMeterError, Reading, hookimpl
from benchmarker_plugins.meters import sysfs

GRACE = re.compile(r"(Module|Grace|CPU|SysIO) Power Socket (\d+)")
RAIL = "the power rail of the cores only"
GRACE_DOMAINS: dict[str, tuple[Domain, str]] = {
    "Module": ("module", "GPU, processor, the memory of both and the regulators' losses"),
    "Grace": ("package", "processor and its memory"),
    "CPU": ("package", RAIL),
}
"""Domain and scope by the first word of a label. CPU and SysIO are parts of Grace; CPU is used only without Grace."""

NO_POWER_W = (0.0, 0xFFFFFFFF / 1000)
"""Placeholders for a missing reading: Linux's if there was never one, and that of Grace's firmware."""

APART_S = 0.1
"""Time between readings of two meters of a Grace socket: within 50 ms the second returns the first's or an old value.

Source: the method TELM in NVIDIA/edk2-nvidia, BpmpSsdtSocket0_TH500.asl.
"""


@hookimpl
def make_meter() -> Meter:
    """Open every meter of the boards, for any device: every case uses the host's power.

    Raises `NoMeterError` if no board reports its power, or none that can be read.
    """
    return HwmonMeter(sysfs.root() / "class" / "hwmon")


class HwmonMeter(Meter):
    """Meters below `class/hwmon`.

    Those of one Grace socket are read in turn, `APART_S` apart; between readings they keep their last value.
    """

    def __init__(self, folder: Path) -> None:
        found, self.unavailable = sysfs.readable(_sources(folder))
        self.channels = [channel for channel, _ in found]
        self._paths = [path for _, path in found]
        sockets: dict[str, deque[int]] = {}
        for index, channel in enumerate(self.channels):
            sockets.setdefault(_socket(channel), deque()).append(index)
        self._sockets = list(sockets.values())
        self._last: list[Reading] = ["sentinel"] * len(found)
        self._due = 0.0
        turns = max(map(len, self._sockets))
        for _ in range(turns if turns > 1 else 0):
            time.sleep(APART_S)
            self.read()

    def read(self) -> Sequence[Reading]:
        """Return energies in J and powers in W; of each Grace socket at most one is new."""
        due = time.monotonic() >= self._due
        for socket in self._sockets:
            if due or len(socket) == 1:
                self._last[socket[0]] = self._ask(socket[0])
                socket.rotate(-1)
        if due:
            self._due = time.monotonic() + APART_S
        return list(self._last)

    def _ask(self, index: int) -> Reading:
        found = sysfs.reading(self._paths[index])
        return "sentinel" if found in NO_POWER_W and self.channels[index].quantity != "energy_J" else found


def _sources(folder: Path) -> list[sysfs.Source]:
    """Return everything that can be read, energies first. Raises `NoMeterError` if there is nothing."""
    remedy = f"only Linux has it, and rarely in a virtual machine or a container; {sysfs.HIDDEN}"
    energies: list[sysfs.Source] = []
    powers: list[sysfs.Source] = []
    for chip in sorted(folder / name for name in sysfs.entries(folder, remedy)):
        driver = sysfs.word(chip / "name") or sysfs.word(chip / "device" / "name")
        if driver == "amd_energy":
            energies += _energies(chip)
        elif driver == "power_meter":
            powers += _powers(chip)
    powers.sort(key=lambda source: (source[0].scope == RAIL, source[0].id))
    found: dict[str, sysfs.Source] = {}
    for channel, path in energies + powers:
        found.setdefault(channel.id, (channel, path))
    if not found:
        raise NoMeterError(
            "unsupported",
            f"no board in {folder} reports its power: `modprobe acpi_power_meter` if there is an ACPI power meter; "
            f"{sysfs.HIDDEN}",
        )
    return list(found.values())


def _energies(chip: Path) -> Iterator[sysfs.Source]:
    """Yield the 64-bit socket counters of amd_energy, which never wrap; the cores' counters are parts of them."""
    for path in sorted(chip.glob("energy*_input")):
        label = re.fullmatch(r"Esocket(\d+)", sysfs.word(path.with_name(path.name.replace("input", "label"))))
        if label:
            yield (
                Channel(
                    id=f"package-{label[1]}",
                    domain="package",
                    quantity="energy_J",
                    device="amd_energy",
                    update_ms=1.0,
                ),
                path,
            )


def _powers(chip: Path) -> Iterator[sysfs.Source]:
    """Yield the meter of a `power_meter` chip; its files are in the folder of the chip or of its device."""
    for path in (place / f"power1_{word}" for place in (chip, chip / "device") for word in ("average", "input")):
        if os.access(path, os.F_OK):
            break
    else:
        return
    device = (chip / "device").resolve().name
    domain: Domain = "psys"
    name, scope = device, "the platform, by the ACPI power meter"
    if label := GRACE.fullmatch(sysfs.word(path.with_name("power1_oem_info"))):
        if label[1] not in GRACE_DOMAINS:
            return
        domain, scope = GRACE_DOMAINS[label[1]]
        name = f"{domain}-{label[2]}"
    average = path.name == "power1_average"
    window = sysfs.number(path.with_name("power1_average_interval")) if average else None
    yield (
        Channel(
            id=name,
            domain=domain,
            quantity="power_average_W" if average else "power_instant_W",
            device=device,
            scope=scope,
            window_ms=float(window) if isinstance(window, int) and window else None,
        ),
        path,
    )


def _socket(channel: Channel) -> str:
    """Return the group in which a channel is read in turn: its Grace socket, or only itself."""
    grace = channel.domain in ("module", "package") and channel.quantity != "energy_J"
    return channel.id.rpartition("-")[2] if grace else channel.id
