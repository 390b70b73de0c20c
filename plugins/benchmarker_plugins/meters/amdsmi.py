"""AMD GPUs, through ROCm's library `libamd_smi.so` and its binding `amdsmi`."""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarker import Channel, Meter, NoMeterError, Quantity, Reading, Reason, Unavailable, hookimpl


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Make one `ImportError` of what the binding prints and raises where it cannot use the library."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        text = (printed.getvalue().splitlines() or [f"{type(error).__name__}: {error}"])[0]
        raise ImportError(
            f"{text}; libamd_smi.so comes with ROCm: set ROCM_PATH to where that is, or LD_LIBRARY_PATH to the "
            f"library's folder, and install the amdsmi of its version"
        ) from error


with _explained():
    import amdsmi

Values = Mapping[str, Any]
Call = Callable[[Any], Values]
Take = Callable[[Values], Reading]
Series = tuple[Quantity, Call, Take, Values]

NO_READING = ("N/A", 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
REASONS: dict[int | None, Reason] = {
    4: "driver",  # FAIL_LOAD_MODULE
    6: "driver",  # DRM_ERROR
    8: "stalled",  # TIMEOUT
    9: "stalled",  # RETRY
    10: "permission",  # NO_PERM
    30: "stalled",  # BUSY
    32: "driver",  # NOT_INIT
    34: "driver",  # DRIVER_NOT_LOADED
    51: "driver",  # NO_DRV
}
"""Reasons by the library's status; any other means `unsupported` where nothing was read yet, and `lost` later."""
NONE_HERE = (2, 31, 40)
"""NOT_SUPPORTED, NOT_FOUND, NO_DATA: where opening the library fails with one of these, there is no card."""
REMEDIES: dict[Reason, str] = {
    "driver": "load the driver (modprobe amdgpu)",
    "permission": "join the groups render and video, which may open /dev/kfd and /dev/dri",
    "sentinel": "the card gives a number that stands for no reading",
    "stalled": "the card does not answer; try again",
    "unsupported": "the card, its driver, or this version of amdsmi does not have it",
    "lost": "it gave readings before",
}
FAILURES = (amdsmi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError)
"""What a call raises: the library's errors, and those of a version without a name, or unable to read its own answer."""

LIMITS: tuple[tuple[str, Sequence[int]], ...] = (
    ("power cap", range(8)),
    ("current limit", range(16, 24)),
    ("thermal", range(32, 46)),
    ("hardware", (46, 47)),
    ("other limit", (56, 57)),
)
"""Bits of `indep_throttle_status`, as Linux defines them (amdgpu_smu.h): PPT; TDC, EDC; TEMP, VRHOT; PROCHOT; PPM, FIT.

A float does not hold all 64: the mask that is read has one bit for each of these words. Cards before MI300 have it.
"""
RESIDENCIES: dict[str, tuple[str, ...]] = {
    "hardware": ("prochot_residency_acc",),
    "power cap": ("ppt_residency_acc",),
    "thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
}
"""Counters of the time for which a limit held, by the word of its `throttle_time_s`; MI300 and later have them."""
SEES: tuple[tuple[str, Values], ...] = (
    ("MI300A", {"domain": "module"}),
    ("MI250", {"scope": "both dies of the card", "shared": True}),
)
"""Cards, by a part of the name, whose energy and power are of more than the GPU; MI250 is two GPUs to a program."""


def _energy(handle: Any) -> Values:
    """Energy in J: the counter times its resolution, which is no whole number of µJ (15.3)."""
    found = amdsmi.amdsmi_get_energy_count(handle)
    count = found["energy_accumulator"] if "energy_accumulator" in found else found["power"]
    return {"energy": "N/A" if count in NO_READING else count * found["counter_resolution"] * 1e-6}


def _temperature(sensor: str) -> Call:
    def call(handle: Any) -> Values:
        which, now = amdsmi.AmdSmiTemperatureType[sensor], amdsmi.AmdSmiTemperatureMetric.CURRENT
        return {sensor: amdsmi.amdsmi_get_temp_metric(handle, which, now)}

    return call


def _clock(name: str) -> Call:
    return lambda handle: {name: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType[name])["clk"]}


def _memory(handle: Any) -> Values:
    return {"used": amdsmi.amdsmi_get_gpu_memory_usage(handle, amdsmi.AmdSmiMemoryType.VRAM)}


def _metrics(handle: Any) -> Values:
    """The driver's table of metrics, from the C library: the binding makes a bool of the mask.

    `amdsmi_get_violation_status` has the same counters, but waits 100 ms for each answer.
    """
    library = amdsmi.amdsmi_wrapper
    table = library.amdsmi_gpu_metrics_t()
    if status := library.amdsmi_get_gpu_metrics_info(handle, ctypes.byref(table)):
        raise amdsmi.AmdSmiLibraryException(status)
    return {name: getattr(table, name) for name, *_ in table._fields_}


def _watts(value: int) -> float:
    """The limit is in µW, though the documentation says W; no limit is 10 kW, nor 0.01 W."""
    return float(value) if value < 1e4 else value / 1e6


def _limits(mask: int) -> float:
    return float(sum(1 << at for at, (_, bits) in enumerate(LIMITS) if any(mask >> bit & 1 for bit in bits)))


def _number(key: str, convert: Callable[[Any], float] = float, above: float = -math.inf) -> Take:
    """Take one value; a card that is on draws some power, so that 0 W is no reading."""

    def take(values: Values) -> Reading:
        value = values[key]
        return "sentinel" if value in NO_READING or value <= above else convert(value)

    return take


class _Residency:
    """Seconds that one of some limits held, since the first reading.

    The firmware counts its samples, and those in which a limit held; how often it samples is not documented. The ratio
    between two readings is a share of the time between them, which the driver's stamp (ns) tells.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = ("system_clock_counter", "accumulation_counter", *keys)
        self._last: list[int] = []
        self._seconds = 0.0

    def __call__(self, values: Values) -> Reading:
        time_ns, samples, *held = now = [values[key] for key in self._keys]
        if NO_READING[-1] in (time_ns, samples, min(held)):
            return "sentinel"
        passed_ns, taken, *more = (new - old for new, old in zip(now, self._last or now, strict=True))
        if taken > 0:
            self._seconds += min(max(*more, 0) / taken, 1.0) * passed_ns / 1e9
        if taken or not self._last:
            self._last = now
        return self._seconds


ENERGETIC: tuple[Quantity, ...] = ("energy_J", "power_instant_W", "power_average_W")
SERIES: tuple[Series, ...] = (
    ("energy_J", _energy, _number("energy", above=0), {}),
    ("power_instant_W", amdsmi.amdsmi_get_power_info, _number("current_socket_power", above=0), {}),
    ("power_average_W", amdsmi.amdsmi_get_power_info, _number("average_socket_power", above=0), {}),
    ("power_limit_W", amdsmi.amdsmi_get_power_info, _number("power_limit", _watts, above=0), {}),
    ("temperature_C", _temperature("HOTSPOT"), _number("HOTSPOT"), {"scope": "hotspot"}),
    ("temperature_C", _temperature("EDGE"), _number("EDGE"), {"scope": "edge"}),
    ("memory_temperature_C", _temperature("VRAM"), _number("VRAM"), {}),
    ("sm_clock_MHz", _clock("GFX"), _number("GFX"), {}),
    ("memory_clock_MHz", _clock("MEM"), _number("MEM"), {}),
    ("utilisation_percent", amdsmi.amdsmi_get_gpu_activity, _number("gfx_activity"), {}),
    ("memory_used_bytes", _memory, _number("used"), {}),
    (
        "throttle_mask",
        _metrics,
        _number("indep_throttle_status", _limits),
        {"bits": {1 << at: word for at, (word, _) in enumerate(LIMITS)}},
    ),
)
"""What is read: the quantity, the call that has it, what takes it from the answer, and what else its channel says.

The times that a limit held come after these, for each card anew: they are summed up from reading to reading.
"""


@hookimpl
def make_meter(device: str | None) -> Meter:
    """Open the library, on all AMD GPUs that the process may see."""
    if device not in (None, "rocm"):
        raise NoMeterError("unsupported", f"meter.amdsmi reads AMD GPUs, and the device is {device}")
    try:
        amdsmi.amdsmi_init()
        handles = _visible(amdsmi.amdsmi_get_processor_handles())
    except FAILURES as error:
        none_here = getattr(error, "err_code", None) in NONE_HERE
        raise NoMeterError(*_why(error, "unsupported" if none_here else "driver")) from error
    if not handles:
        raise NoMeterError("unsupported", "amdsmi finds no AMD GPU")
    meter = AmdMeter(handles)
    if not meter.channels:
        raise NoMeterError(meter.unavailable[0].reason, meter.unavailable[0].message)
    return meter


class AmdMeter(Meter):
    """Every series of every card that gives a first reading; a card is asked once for what several series share."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.unavailable: list[Unavailable] = []
        opened = [each for handle in handles for each in self._open(handle)]
        opened.sort(key=lambda each: each[0].quantity != "energy_J")
        self.channels = [channel for channel, _, _, _ in opened]
        self._asked = [asked for _, *asked in opened]

    def read(self) -> Sequence[Reading]:
        """One reading of each channel, or why it has none now."""
        answers: dict[tuple[int, Call], Values | Exception] = {}
        readings: list[Reading] = []
        for handle, call, take in self._asked:
            at = (id(handle), call)
            if at not in answers:
                answers[at] = _ask(handle, call)
            readings.append(_taken(answers[at], take, "lost")[0])
        return readings

    def _open(self, handle: Any) -> Iterator[tuple[Channel, Any, Call, Take]]:
        """The series of a card that give a reading; a quantity of which none does is unavailable."""
        name = _text(lambda handle: amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"], handle) or "AMD GPU"
        pci = _text(amdsmi.amdsmi_get_gpu_device_bdf, handle) or None
        card = _text(amdsmi.amdsmi_get_gpu_device_uuid, handle) or pci or name
        sees = next((more for part, more in SEES if part in name), {})
        answers: dict[Call, Values | Exception] = {}
        unavailable: dict[Quantity, Unavailable] = {}
        opened: set[Quantity] = set()
        held: list[Series] = [
            ("throttle_time_s", _metrics, _Residency(keys), {"what": word}) for word, keys in RESIDENCIES.items()
        ]
        for quantity, call, take, more in (*SERIES, *held):
            if quantity in opened and "what" not in more:
                continue
            if call not in answers:
                answers[call] = _ask(handle, call)
            reading, text = _taken(answers[call], take, "unsupported")
            if isinstance(reading, str):
                unavailable.setdefault(quantity, Unavailable(quantity, reading, f"{pci or card}: {text}"))
                continue
            opened.add(quantity)
            said = {"domain": "gpu", **more, **(sees if quantity in ENERGETIC else {})}
            yield Channel(id=card, quantity=quantity, device=name, pci=pci, **said), handle, call, take
        self.unavailable += [missing for quantity, missing in unavailable.items() if quantity not in opened]


def _ask(handle: Any, call: Call) -> Values | Exception:
    try:
        return call(handle)
    except FAILURES as error:
        return error


def _taken(answer: Values | Exception, take: Take, otherwise: Reason) -> tuple[Reading, str]:
    """The reading in an answer, and what is to be said where it is none."""
    if isinstance(answer, Exception):
        return _why(answer, otherwise)
    try:
        return take(answer), REMEDIES["sentinel"]
    except FAILURES as error:
        return _why(error, otherwise)


def _why(error: Exception, otherwise: Reason) -> tuple[Reason, str]:
    """The reason in an error, and one line that says it with the remedy."""
    reason = REASONS.get(getattr(error, "err_code", None), otherwise)
    text = getattr(error, "err_info", None) or f"{type(error).__name__}: {' '.join(str(error).split())}"
    return reason, f"{text}; {REMEDIES[reason]}"


def _text(call: Callable[[Any], str], handle: Any) -> str:
    """What a call says of a card, or an empty text."""
    try:
        text = call(handle)
    except FAILURES:
        return ""
    return "" if text in NO_READING else text


def _visible(handles: Sequence[Any]) -> Sequence[Any]:
    """The cards that ROCr and HIP are told to use, where that is beyond doubt; else all.

    ROCr's variable counts the cards in HIP's order, HIP's counts those that ROCr leaves; both also take `GPU-` names.
    """
    hip, cuda = os.environ.get("HIP_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES")
    masks = [mask for mask in (os.environ.get("ROCR_VISIBLE_DEVICES"), hip or cuda) if mask]
    if not masks or (hip and cuda and hip != cuda):
        return handles
    try:
        infos = [amdsmi.amdsmi_get_gpu_enumeration_info(handle) for handle in handles]
    except FAILURES:
        return handles
    if {info["hip_id"] for info in infos} != set(range(len(handles))):
        return handles
    seen = sorted(zip(infos, handles, strict=True), key=lambda each: each[0]["hip_id"])
    for mask in masks:
        chosen = []
        for entry in (each.strip() for each in mask.split(",")):
            named = [each for at, each in enumerate(seen) if entry in (str(at), each[0]["hip_uuid"])]
            if len(named) != 1:
                return handles
            chosen += named
        seen = chosen
    return [handle for handle in handles if any(handle is each for _, each in seen)]
