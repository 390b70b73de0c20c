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
    """If the binding cannot use the library, turn what it prints and raises into one `ImportError`."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        text = (printed.getvalue().splitlines() or [f"{type(error).__name__}: {error}"])[0]
        raise ImportError(
            f"{text}; libamd_smi.so comes with ROCm: set ROCM_PATH to the folder of ROCm, or LD_LIBRARY_PATH to the "
            f"library's folder, and install the matching version of amdsmi"
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
"""Reasons by the library's status; all others mean `unsupported` before the first reading, and `lost` later."""
NONE_HERE = (2, 31, 40)
"""NOT_SUPPORTED, NOT_FOUND, NO_DATA: if opening the library fails with one of these, there is no card."""
REMEDIES: dict[Reason, str] = {
    "driver": "load the driver (modprobe amdgpu)",
    "permission": "add the user to the groups render and video, which can open /dev/kfd and /dev/dri",
    "sentinel": "the card returned a placeholder, not a reading",
    "stalled": "the card does not answer; try again",
    "unsupported": "the card, its driver, or this version of amdsmi does not support it",
    "lost": "it returned readings before",
}
FAILURES = (amdsmi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError)
"""Errors of a call: the library's own, and those of a version without the name or unable to parse its own answer."""

LIMITS: tuple[tuple[str, Sequence[int]], ...] = (
    ("power cap", range(8)),
    ("current limit", range(16, 24)),
    ("thermal", range(32, 46)),
    ("hardware", (46, 47)),
    ("other limit", (56, 57)),
)
"""Bits of `indep_throttle_status`, as Linux defines them (amdgpu_smu.h): PPT; TDC, EDC; TEMP, VRHOT; PROCHOT; PPM, FIT.

A float cannot hold all 64 bits, so the mask returned has one bit for each of these words. Cards before MI300 have it.
"""
RESIDENCIES: dict[str, tuple[str, ...]] = {
    "hardware": ("prochot_residency_acc",),
    "power cap": ("ppt_residency_acc",),
    "thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
}
"""Counters of the time in which a limit was active, by the word of its `throttle_time_s`; MI300 and later."""
SEES: tuple[tuple[str, Values], ...] = (
    ("MI300A", {"domain": "module"}),
    ("MI250", {"scope": "both dies of the card", "shared": True}),
)
"""Cards, by a part of the name, whose energy and power cover more than the GPU; an MI250 appears as two GPUs."""


def _energy(handle: Any) -> Values:
    """Return the energy in J: the counter times its resolution, which is a fractional number of µJ (15.3)."""
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
    """Return the driver's table of metrics from the C library, because the binding converts the mask to a bool.

    `amdsmi_get_violation_status` has the same counters, but takes 100 ms for each answer.
    """
    library = amdsmi.amdsmi_wrapper
    table = library.amdsmi_gpu_metrics_t()
    if status := library.amdsmi_get_gpu_metrics_info(handle, ctypes.byref(table)):
        raise amdsmi.AmdSmiLibraryException(status)
    return {name: getattr(table, name) for name, *_ in table._fields_}


def _watts(value: int) -> float:
    """Return the limit in W. It is in µW, although the documentation says W; no limit is 10 kW or more, or 0.01 W."""
    return float(value) if value < 1e4 else value / 1e6


def _limits(mask: int) -> float:
    return float(sum(1 << at for at, (_, bits) in enumerate(LIMITS) if any(mask >> bit & 1 for bit in bits)))


def _number(key: str, convert: Callable[[Any], float] = float, above: float = -math.inf) -> Take:
    """Return a function that extracts one value; values up to `above` are placeholders (no running card draws 0 W)."""

    def take(values: Values) -> Reading:
        value = values[key]
        return "sentinel" if value in NO_READING or value <= above else convert(value)

    return take


class _Residency:
    """Seconds since the first reading in which any of several limits was active.

    The firmware counts its samples, and those in which a limit was active; its sampling rate is not documented. The
    ratio of the two increments is a share of the time between two readings, from the driver's time stamp (ns).
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
"""The series to read: quantity, call, function that extracts the value from the answer, further channel fields.

The times in which a limit was active are created separately for each card, because they are summed over readings.
"""


@hookimpl
def make_meter(device: str | None) -> Meter:
    """Open the library, for all AMD GPUs that are visible to the process."""
    if device not in (None, "rocm"):
        raise NoMeterError("unsupported", f"meter.amdsmi reads AMD GPUs, but the device is {device}")
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
    """Every series of every card whose first reading succeeds; series that share a call share its answer."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.unavailable: list[Unavailable] = []
        opened = [each for handle in handles for each in self._open(handle)]
        opened.sort(key=lambda each: each[0].quantity != "energy_J")
        self.channels = [channel for channel, _, _, _ in opened]
        self._asked = [asked for _, *asked in opened]

    def read(self) -> Sequence[Reading]:
        """Return one reading of each channel, or the reason for none."""
        answers: dict[tuple[int, Call], Values | Exception] = {}
        readings: list[Reading] = []
        for handle, call, take in self._asked:
            at = (id(handle), call)
            if at not in answers:
                answers[at] = _ask(handle, call)
            readings.append(_taken(answers[at], take, "lost")[0])
        return readings

    def _open(self, handle: Any) -> Iterator[tuple[Channel, Any, Call, Take]]:
        """Yield the series of a card that can be read; a quantity without such a series is unavailable."""
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
    """Return the reading in an answer, and the message for the case that it is none."""
    if isinstance(answer, Exception):
        return _why(answer, otherwise)
    try:
        return take(answer), REMEDIES["sentinel"]
    except FAILURES as error:
        return _why(error, otherwise)


def _why(error: Exception, otherwise: Reason) -> tuple[Reason, str]:
    """Return the reason of an error, and one line with the remedy."""
    reason = REASONS.get(getattr(error, "err_code", None), otherwise)
    text = getattr(error, "err_info", None) or f"{type(error).__name__}: {' '.join(str(error).split())}"
    return reason, f"{text}; {REMEDIES[reason]}"


def _text(call: Callable[[Any], str], handle: Any) -> str:
    """Return the result of a call for a card, or an empty text."""
    try:
        text = call(handle)
    except FAILURES:
        return ""
    return "" if text in NO_READING else text


def _visible(handles: Sequence[Any]) -> Sequence[Any]:
    """Return the cards that ROCr and HIP may use, or all cards if this is ambiguous.

    Indices in ROCr's variable follow HIP's order; those in HIP's variable count the cards that ROCr leaves. Both also
    accept `GPU-` names.
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
