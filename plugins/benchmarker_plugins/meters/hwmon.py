"""Power that boards report through Linux's hwmon: ACPI power meters (NVIDIA Grace's among them) and amd_energy."""

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarker import Channel, Domain, Meter, NoMeterError, Reading, hookimpl
from benchmarker_plugins.meters import sysfs

GRACE = re.compile(r"(Module|Grace|CPU|SysIO) Power Socket (\d+)")
RAIL = "the rail of the cores alone"
GRACE_DOMAINS: dict[str, tuple[Domain, str]] = {
    "Module": ("module", "GPU, processor, the memory of both and the regulators' losses"),
    "Grace": ("package", "processor and its memory"),
    "CPU": ("package", RAIL),
}
"""By the first word of a label. CPU and SysIO are parts of Grace, so CPU counts only where there is no Grace."""

NO_POWER_W = (0.0, 0xFFFFFFFF / 1000)
"""Numbers that stand for none: Linux's where it never had one, and that of Grace's firmware."""

APART_S = 0.1
"""Between reading two meters of one Grace socket: within 50 ms the second gives the first's value, or an old one.

Source: the method TELM in NVIDIA/edk2-nvidia, BpmpSsdtSocket0_TH500.asl.
"""


@hookimpl
def make_meter() -> Meter:
    """Every meter of the boards, whatever the case's device: all take the host's power.

    Raises `NoMeterError` where no board reports its power, or none that may be read.
    """
    return HwmonMeter(sysfs.root() / "class" / "hwmon")


class HwmonMeter(Meter):
    """Meters below `class/hwmon`; those of one Grace socket take turns, `APART_S` apart, and keep their last value."""

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
        """Energies in J, powers in W; one of each socket is new."""
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
    """What there is to read, energies first; raises `NoMeterError` where nothing."""
    remedy = f"Linux alone has it, and rarely in a virtual machine or a container; {sysfs.HIDDEN}"
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
            f"no board in {folder} reports its power: `modprobe acpi_power_meter` where one has an ACPI power meter; "
            f"{sysfs.HIDDEN}",
        )
    return list(found.values())


def _energies(chip: Path) -> Iterator[sysfs.Source]:
    """Sockets' counters of amd_energy, which adds them up in 64 bits and never wraps; the cores' are parts of them."""
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
    """The one meter of a `power_meter` chip; Linux puts its files in the chip's folder or its device's."""
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
    """Whose turns a channel takes part in: a Grace socket's, or only its own."""
    grace = channel.domain in ("module", "package") and channel.quantity != "energy_J"
    return channel.id.rpartition("-")[2] if grace else channel.id
