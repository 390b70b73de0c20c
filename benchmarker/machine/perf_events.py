"""Event counters of Linux: what the processor and the kernel count of this process, by perf_event_open(2).

An event is opened once for each thread that the process has. Threads and processes that these start later inherit it,
so that one number holds them all:

    process |- thread 1 ---- event --+-- started later: inherits
            |- thread 2 ---- event --+-- a program: inherits

Events of the processor share few registers. If there are more events than registers, they take turns, and each number
is scaled by the time that it was counted. Events form no groups, which would take their turns together: what inherits a
group begins to count all but its first event up to 12 ms late (Linux 6.18).
"""

import ctypes
import errno
import os
import platform
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.formatting import names_in
from benchmarker.records.record import EventCount

NONE = "none"
"""The value of `--counters` for no counter."""


class Event(NamedTuple):
    """What can be counted: its type and number for the kernel, and what it is.

    One `in_kernel` happens only there; of the others, what user code does is counted.
    """

    kind: int
    config: int
    meaning: str
    unit: str = "1"
    in_kernel: bool = False


_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3  # enum perf_type_id of <linux/perf_event.h>, from which all numbers here are
_LAST_LEVEL, _READ, _MISS = 2, 0 << 8, 1 << 16

COUNTERS: Mapping[str, Event] = {
    "cycles": Event(_HARDWARE, 0, "cycles of the processor"),
    "instructions": Event(_HARDWARE, 1, "instructions that were completed"),
    "llc_misses": Event(_CACHE, _LAST_LEVEL | _READ | _MISS, "reads that missed the last-level cache"),
    "page_faults": Event(_SOFTWARE, 2, "pages that were not mapped when used"),
    "context_switches": Event(_SOFTWARE, 3, "switches of a thread off a core", in_kernel=True),
    "cpu_migrations": Event(_SOFTWARE, 4, "moves of a thread to another core", in_kernel=True),
    "task_clock": Event(_SOFTWARE, 1, "processor time of all threads", unit="ns"),
}
"""All counters by name."""


def chosen(text: str) -> list[str]:
    """Return the counters that a value of `--counters` names, separated by commas.

    Raises `UserError` if one is unknown.
    """
    names = names_in(text)
    if names == [NONE]:
        return []
    there_are = f"there are: {', '.join(COUNTERS)}"
    if NONE in names:
        raise UserError(f"--counters={text}: {NONE} cannot be combined with other names")
    if unknown := [name for name in names if name not in COUNTERS]:
        raise UserError(f"--counters: no counter is named {unknown[0]!r}; {there_are}")
    if not names:
        raise UserError(f"--counters names no counter; {there_are}; --counters={NONE} counts nothing")
    return names


class Reading(Struct, frozen=True):
    """What all threads of a process counted of an event, or the reason why it is not counted.

    `enabled_ns` is how long they ran while it was to be counted, and `running_ns` for how much of that it was.
    """

    name: str
    value: int = 0
    enabled_ns: int = 0
    running_ns: int = 0
    reason: str = ""


class Kernel(Protocol):
    """The calls of the operating system; each raises OSError if it fails."""

    def threads(self) -> list[int]:
        """Return the threads of this process."""

    def open(self, event: Event, thread: int) -> int:
        """Open an event of a thread, disabled; returns its descriptor."""

    def enable(self) -> None:
        """Let all events count that this thread has opened, also in what has inherited them."""

    def disable(self) -> None:
        """Let them stop."""

    def read(self, descriptor: int) -> tuple[int, int, int]:
        """Return the number of events, and for how long (ns) the event was enabled and counted."""

    def close(self, descriptor: int) -> None:
        """Close an event."""


class Counters:
    """Events of this process, opened for all its threads.

    They count between `enable` and `disable`, which the thread calls that has made them, and which hold for all events
    that it has opened.
    """

    def __init__(self, names: Sequence[str], kernel: Kernel | None = None) -> None:
        self._kernel = kernel or Linux()
        self._opened: dict[str, list[int]] = {}
        self._reasons: dict[str, str] = {}
        self.enable, self.disable = self._kernel.enable, self._kernel.disable
        threads = self._kernel.threads()
        for name in names:
            self._opened[name] = []
            try:
                for thread in threads:
                    with suppress(ProcessLookupError):  # it has just ended
                        self._opened[name].append(self._kernel.open(COUNTERS[name], thread))
            except OSError as error:
                self._close(name)
                self._reasons[name] = reason_of(error, COUNTERS[name])

    def read(self) -> list[Reading]:
        """Return what was counted of each event until now."""
        readings = []
        for name, descriptors in self._opened.items():
            read = [self._kernel.read(descriptor) for descriptor in descriptors]
            value, enabled_ns, running_ns = (sum(each[at] for each in read) for at in range(3))
            readings.append(Reading(name, value, enabled_ns, running_ns, self._reasons.get(name, "")))
        return readings

    def close(self) -> None:
        """Close all events."""
        for name in self._opened:
            self._close(name)

    def _close(self, name: str) -> None:
        while self._opened[name]:
            self._kernel.close(self._opened[name].pop())


def totals(readings: Sequence[Sequence[Reading]]) -> tuple[list[EventCount], dict[str, str]]:
    """Return the numbers over several processes that counted the same events, and why there is none, by its path.

    What was counted for only part of the time is scaled: value · enabled / running, each summed over all threads
    (perf_event_open(2), "multiplexing").
    """
    counts, reasons = [], {}
    for at, of in enumerate(zip(*readings, strict=True)):
        reason = next((each.reason for each in of if each.reason), "")
        value = sum(each.value for each in of)
        enabled, running = sum(each.enabled_ns for each in of), sum(each.running_ns for each in of)
        share = min(1.0, running / enabled) if enabled and not reason else 0.0
        counts.append(EventCount(of[0].name, round(value / share) if share else None, share))
        if not share:
            reasons[f"counters[{at}].count"] = reason or NEVER
    return counts, reasons


NEVER = (
    "the processor had no free register for it; ask for fewer counters, or as root, `sysctl kernel.nmi_watchdog=0` "
    "frees one"
)


def reason_of(error: OSError, event: Event) -> str:
    """Return why an event cannot be counted, in one line with the remedy."""
    number = error.errno
    if number in (errno.EACCES, errno.EPERM):
        paranoid, most = _paranoid(), 1 if event.in_kernel else 2
        if paranoid is not None and paranoid > most:
            return (
                f"permission: kernel.perf_event_paranoid is {paranoid}; as root, "
                f"`sysctl kernel.perf_event_paranoid={most}` permits it"
            )
        return (
            "permission: the system call is blocked, as in containers; start the container with --cap-add=PERFMON, or "
            "permit perf_event_open in its seccomp profile"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return "each counter of each thread is an open file: raise the limit of open files (`ulimit -n`)"
    if number == errno.ENOSYS:
        return f"there are event counters only in Linux on {', '.join(_SYSTEM_CALL)}"
    if number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return "the processor has no such counter, or the virtual machine hides it"
    return error.strerror or str(error)


def available() -> dict[str, str]:
    """Return for each counter why it cannot be counted here; empty if it can."""
    counters = Counters(list(COUNTERS))
    try:
        return {reading.name: reading.reason for reading in counters.read()}
    finally:
        counters.close()


def _paranoid() -> int | None:
    """Return what the system permits to users, or None if it does not say (Documentation/admin-guide/sysctl/kernel)."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    return None


_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319}
"""The number of perf_event_open on little-endian machines, from the kernel's tables of system calls."""
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""The first version of struct perf_event_attr, which all kernels take."""
_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 1 << 3
_DISABLE_ALL, _ENABLE_ALL = 31, 32  # PR_TASK_PERF_EVENTS_DISABLE and _ENABLE of <linux/prctl.h>


class Linux:
    """The kernel that there is; one without event counters fails as if it lacked the system call."""

    def __init__(self) -> None:
        self._number = _SYSTEM_CALL.get(platform.machine()) if sys.platform == "linux" else None
        library = ctypes.CDLL(None, use_errno=True)
        long = ctypes.c_long
        self._call = library.syscall
        self._call.argtypes, self._call.restype = (long, ctypes.c_char_p, long, long, long, long), long
        self._control = library.prctl if self._number is not None else None

    def threads(self) -> list[int]:
        """Return the threads of this process."""
        with suppress(OSError):
            return [int(path.name) for path in Path("/proc/self/task").iterdir()]
        return [threading.get_native_id()]

    def open(self, event: Event, thread: int) -> int:
        """Open an event of a thread, disabled; returns its descriptor."""
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flags = _DISABLED | _INHERIT | _EXCLUDE_HYPERVISOR | (0 if event.in_kernel else _EXCLUDE_KERNEL)
        attributes = _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.config, 0, 0, _TIMES, flags, 0, 0, 0)
        on_any_core = no_group = -1
        descriptor: int = self._call(self._number, attributes, thread, on_any_core, no_group, _CLOSE_ON_EXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return descriptor

    def enable(self) -> None:
        """Let all events count that this thread has opened, also in what has inherited them."""
        if self._control:
            self._control(_ENABLE_ALL)

    def disable(self) -> None:
        """Let them stop."""
        if self._control:
            self._control(_DISABLE_ALL)

    def read(self, descriptor: int) -> tuple[int, int, int]:
        """Return the number of events, and for how long (ns) the event was enabled and counted."""
        value, enabled_ns, running_ns = struct.unpack("=QQQ", os.read(descriptor, 24))
        return value, enabled_ns, running_ns

    def close(self, descriptor: int) -> None:
        """Close an event."""
        os.close(descriptor)
