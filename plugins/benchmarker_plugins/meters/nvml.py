"""NVIDIA GPUs, through the driver's library `libnvidia-ml.so.1` and its binding `pynvml` (nvidia-ml-py)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pynvml
from msgspec import Struct

from benchmarker import Channel, Domain, Meter, NoMeterError, Quantity, Reading, Reason, Unavailable, hookimpl

REASONS: dict[int, Reason] = {
    3: "unsupported",  # NOT_SUPPORTED
    4: "permission",  # NO_PERMISSION
    6: "unsupported",  # NOT_FOUND
    10: "stalled",  # TIMEOUT
    15: "lost",  # GPU_IS_LOST
    16: "lost",  # RESET_REQUIRED
    28: "unsupported",  # GPU_NOT_FOUND
}
"""Reasons by NVML's error code; all other codes mean `driver`."""
REMEDIES: dict[int, str] = {
    4: "give the user access to /dev/nvidiactl and /dev/nvidia*; an administrator may have restricted it",
    9: "load the driver (modprobe nvidia)",
    12: "install NVIDIA's driver, add libnvidia-ml.so.1's folder to LD_LIBRARY_PATH, or run the container with GPUs",
    13: "a newer driver may support it",
    15: "reset the GPU (nvidia-smi --gpu-reset) or reboot",
    16: "reset the GPU (nvidia-smi --gpu-reset) or reboot",
    18: "the driver was updated while it was loaded: reboot, or reload its modules",
}
FUNCTION_NOT_FOUND, UNKNOWN = 13, 999

GENERATIONS = {4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper"}
"""Names of generations in nvml.toml, by NVML_DEVICE_ARCH."""
KNOWN = tomllib.loads(Path(__file__).with_name("nvml.toml").read_text())

SCOPES: dict[Domain, int] = {"gpu": 0, "module": 1, "gpu_memory": 2}
"""NVML_POWER_SCOPE."""
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field's value, by NVML_VALUE_TYPE."""
BELOW = {"J": 1e15, "W": 1e5, "C": 1e3, "MHz": 1e5, "percent": 100.5, "bytes": 1e15, "mask": 2**53, "s": 1e9}
"""Valid readings are below these limits, by unit: NVML's placeholder is all ones. Power must also be above 0."""
WORDS = (
    *("idle", "clocks set", "power cap", "hardware", "sync boost", "thermal", "thermal"),
    *("power brake", "display clock", "board limit", "reliability"),
)
"""Words for the bits of nvmlClocksEventReasons (once nvmlClocksThrottleReasons), from the lowest.

The first thermal slowdown is the driver's, the second the hardware's.
"""
POLICIES = {1: "thermal", 2: "sync boost", 3: "board limit", 5: "reliability"}
"""NVML_PERF_POLICY with timed violations. The power cap's is omitted: it is slow to read, and the bits show it."""

Call = Callable[[Any], float]
Field = tuple[int, int]
"""NVML_FI_DEV and its scope."""


class _Series(Struct, frozen=True):
    """One quantity: the call or field that returns it, its units per unit of ours, and whether it is rare."""

    quantity: Quantity
    source: Call | Field
    per_unit: float = 1
    domain: Domain = "gpu"
    rare: bool = False
    bits: dict[int, str] = {}
    what: str = ""


def _call(*names: str, arguments: Sequence[int] = (), of: Callable[[Any], float] = float) -> Call:
    """Return a call that uses the first of these names that both the binding and the library have."""

    def call(handle: Any) -> float:
        for name in names:
            try:
                return of(getattr(pynvml, name)(handle, *arguments))
            except (AttributeError, pynvml.NVMLError_FunctionNotFound):
                continue
        raise pynvml.NVMLError(FUNCTION_NOT_FOUND)

    return call


def _power(quantity: Quantity, field: int) -> Iterator[_Series]:
    for domain, scope in SCOPES.items():
        yield _Series(quantity, (field, scope), 1e3, domain, rare=domain != "gpu")


def _violation(policy: int, word: str) -> _Series:
    call = _call("nvmlDeviceGetViolationStatus", arguments=[policy], of=attrgetter("violationTime"))
    return _Series("throttle_time_s", call, 1e9, what=word)


SERIES = (
    _Series("energy_J", _call("nvmlDeviceGetTotalEnergyConsumption"), 1e3),
    *_power("power_instant_W", 186),
    *_power("power_average_W", 185),
    _Series("power_limit_W", _call("nvmlDeviceGetEnforcedPowerLimit"), 1e3),
    _Series("temperature_C", _call("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", arguments=[0])),
    _Series("memory_temperature_C", (82, 0), rare=True),
    _Series("sm_clock_MHz", _call("nvmlDeviceGetClockInfo", arguments=[1])),
    _Series("memory_clock_MHz", _call("nvmlDeviceGetClockInfo", arguments=[2])),
    _Series("utilisation_percent", _call("nvmlDeviceGetUtilizationRates", of=attrgetter("gpu"))),
    _Series("memory_used_bytes", _call("nvmlDeviceGetMemoryInfo", of=attrgetter("used"))),
    _Series(
        "throttle_mask",
        _call("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        bits={1 << at: word for at, word in enumerate(WORDS)},
    ),
    *(_violation(policy, word) for policy, word in POLICIES.items()),
)
"""The series to read, by NVML's numbers.

Fields: POWER_INSTANT 186, POWER_AVERAGE 185, MEMORY_TEMP 82. Arguments: TEMPERATURE_GPU 0, CLOCK_SM 1, CLOCK_MEM 2.
"""


@hookimpl
def make_meter(device: str | None) -> Meter:
    """Open the library, for all cards that CUDA_VISIBLE_DEVICES allows."""
    if device not in (None, "cuda"):
        raise NoMeterError("unsupported", f"meter.nvml reads NVIDIA GPUs, but the device is {device}")
    cards: list[_Card] = []
    unavailable: list[Unavailable] = []
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise NoMeterError(*_why(error)) from error
    for index in range(count):
        try:
            cards.append(_Card(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:
            unavailable.append(Unavailable(f"GPU {index} in NVML's order", *_why(error)))
    visible = _visible(cards)
    meter = NvmlMeter(visible, unavailable)
    if meter.channels:
        return meter
    if meter.unavailable:
        raise NoMeterError(meter.unavailable[0].reason, meter.unavailable[0].message)
    if cards:
        entries = os.environ["CUDA_VISIBLE_DEVICES"]
        raise NoMeterError("unsupported", f"CUDA_VISIBLE_DEVICES={entries} names none of {len(cards)} GPUs")
    raise NoMeterError("unsupported", "NVML finds no GPU")


class NvmlMeter(Meter):
    """Every series of every card whose first reading succeeds."""

    def __init__(self, cards: Sequence[_Card], unavailable: list[Unavailable]) -> None:
        self.unavailable: list[Unavailable] = unavailable
        self._cards = cards
        self._asked = [(card, series) for card in cards for series in self._open(card)]
        self._asked.sort(key=lambda each: each[1].quantity != "energy_J")
        self.channels = [card.channel(series) for card, series in self._asked]

    def read(self) -> Sequence[Reading]:
        """Query each card once for all its fields, and once for each other series."""
        for card in self._cards:
            card.forget()
        return [card.ask(series)[0] for card, series in self._asked]

    def _open(self, card: _Card) -> Sequence[_Series]:
        """Return the series of a card that can be read; the others are unavailable, except rare ones."""
        found: list[_Series] = []
        unavailable: list[Unavailable] = []
        gpu: dict[Quantity, float] = {}
        for series in SERIES:
            reading, message = card.ask(series)
            if isinstance(reading, float):
                if series.domain == "gpu":
                    gpu[series.quantity] = reading
                elif reading == gpu.get(series.quantity):
                    continue  # a driver that does not support scopes returns the GPU's value
                found.append(series)
            elif not series.rare:
                what = f"{series.quantity} ({series.what})" if series.what else series.quantity
                unavailable.append(Unavailable(what, reading, f"{card.pci or card.uuid}: {message}"))
        if card.usage and not gpu.keys() & {"power_instant_W", "power_average_W"}:
            series = _Series(card.usage, _call("nvmlDeviceGetPowerUsage"), 1e3)
            if isinstance(card.ask(series)[0], float):
                found.append(series)
                unavailable = [missing for missing in unavailable if missing.what != card.usage]
        if card.lost:
            found, unavailable = [], [Unavailable(f"GPU {card.pci or card.uuid}", "lost", card.lost)]
        self.unavailable.extend(unavailable)
        card.fields = [series.source for series in found if isinstance(series.source, tuple)]
        return found


class _Card:
    """One GPU: its description and its readings."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        self.name = str(pynvml.nvmlDeviceGetName(handle))
        info = _told(pynvml.nvmlDeviceGetPciInfo, handle, None)
        self.pci = f"{info.domain:04x}:{info.busId.lower().partition(':')[2]}" if info else None
        self.in_mig_mode = _told(pynvml.nvmlDeviceGetMigMode, handle, [0])[0] == 1
        architecture = _told(pynvml.nvmlDeviceGetArchitecture, handle, UNKNOWN)
        ga100 = _told(pynvml.nvmlDeviceGetCudaComputeCapability, handle, ()) == (8, 0)
        self.generation = "ga100" if ga100 else GENERATIONS.get(architecture, "")
        self.usage: Quantity | None = None
        """What nvmlDeviceGetPowerUsage returns: instant power on GA100 and before Ampere, otherwise a mean over 1 s."""
        if architecture < 32:
            self.usage = "power_average_W" if architecture >= 7 and not ga100 else "power_instant_W"
        self.lost = ""
        self.fields = [series.source for series in SERIES if isinstance(series.source, tuple)]
        self._answer: dict[Field, Any] | pynvml.NVMLError | None = None

    def channel(self, series: _Series) -> Channel:
        """Return the channel of a series, with the known properties of the sensor."""
        known = KNOWN.get(self.generation, {}).get(series.quantity, {}) if series.domain == "gpu" else {}
        return Channel(
            id=self.uuid,
            domain=series.domain,
            quantity=series.quantity,
            device=self.name,
            pci=self.pci,
            scope="whole card, which MIG instances share" if self.in_mig_mode else "",
            shared=self.in_mig_mode,
            bits=series.bits,
            what=series.what,
            **known,
        )

    def forget(self) -> None:
        """Discard the fields, so that the next reading queries them again."""
        self._answer = None

    def ask(self, series: _Series) -> tuple[Reading, str]:
        """Return the reading of a series, or the reason for none with a message; a lost card is not queried again."""
        if self.lost:
            return "lost", self.lost
        try:
            raw = self._field(series.source) if isinstance(series.source, tuple) else series.source(self.handle)
        except pynvml.NVMLError as error:
            reason, message = _why(error)
            self.lost = message if reason == "lost" else ""
            return reason, message
        value = float(raw / series.per_unit)
        unit = series.quantity.rpartition("_")[2]
        if (0 if unit == "W" else -1) < value < BELOW[unit]:
            return value, ""
        return "sentinel", f"{value:g} is a placeholder, not a reading"

    def _field(self, field: Field) -> float:
        if self._answer is None:
            try:
                values = pynvml.nvmlDeviceGetFieldValues(self.handle, self.fields)
                self._answer = dict(zip(self.fields, values, strict=True))
            except pynvml.NVMLError as error:
                self._answer = error
        if isinstance(self._answer, pynvml.NVMLError):
            raise self._answer
        value = self._answer[field]
        if value.nvmlReturn or value.valueType >= len(MEMBERS):
            raise pynvml.NVMLError(value.nvmlReturn or UNKNOWN)
        return float(getattr(value.value, MEMBERS[value.valueType]))


def _visible(cards: Sequence[_Card]) -> Sequence[_Card]:
    """Return the cards that CUDA_VISIBLE_DEVICES names, up to its first invalid entry, where CUDA stops.

    An index refers to PCI order if CUDA_DEVICE_ORDER sets it. Otherwise NVML does not know the order, and an index
    selects all cards.
    """
    entries = os.environ.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        return cards
    by_pci = (
        sorted(cards, key=lambda card: card.pci or "") if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" else None
    )
    chosen: list[_Card] = []
    for entry in map(str.strip, entries.split(",")):
        if entry.isdecimal():
            named = by_pci[int(entry) :][:1] if by_pci else cards if int(entry) < len(cards) else []
        else:
            uuid = _uuid(entry)
            named = [card for card in cards if uuid and card.uuid.startswith(uuid)]
            named = named if len(named) == 1 else []
        if not named:
            break
        chosen += named
    return [card for card in cards if card in chosen]


def _uuid(entry: str) -> str:
    """Return the UUID, or its beginning, of the card that an entry names; for a MIG instance, of its card."""
    if entry.startswith("MIG-GPU-"):
        return entry.removeprefix("MIG-").partition("/")[0]
    if entry.startswith("MIG-"):
        try:
            instance = pynvml.nvmlDeviceGetHandleByUUID(entry)
            return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)))
        except pynvml.NVMLError:
            return ""
    return entry if entry.startswith("GPU-") else ""


def _told(call: Callable[[Any], Any], handle: Any, otherwise: Any) -> Any:
    """Return the result of a call for a card, or `otherwise` if it fails."""
    try:
        return call(handle)
    except pynvml.NVMLError:
        return otherwise


def _why(error: pynvml.NVMLError) -> tuple[Reason, str]:
    """Return the reason of an error, and one line with the remedy."""
    code = error.value
    remedy = f"; {REMEDIES[code]}" if code in REMEDIES else ""
    return REASONS.get(code, "driver"), f"{error} (NVML error {code}){remedy}"
