"""Ceilings: the highest rates measured on a device, in FLOP/s and in bytes/s, stored by device for later use.

They are stored in the user's cache, one file per device, and in the folder of the run that measured them.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import platformdirs
from msgspec import Meta, Struct

from benchmarker.api.fields import Positive
from benchmarker.api.precision import PRECISIONS
from benchmarker.files import atomic
from benchmarker.files.atomic import Fault
from benchmarker.formatting import count
from benchmarker.records.record import Record
from benchmarker.records.store import CEILINGS, beside

Method = Literal["quick", "thorough"]
Resource = Literal["compute", "memory", "matvec", "matvec_8", "matvec_small", "matvec_8_small"]
VARIABLE = "BENCHMARKER_CEILINGS"
ABOUT = "a few minutes"
"""How long a quick measurement takes in one precision, in all frameworks."""
MATVEC_ROWS: dict[Resource, int] = {"matvec": 1, "matvec_8": 8}
"""Rows of x in the products y = x·W that measure how fast a matrix of weights is read."""
SMALL: dict[Resource, Resource] = {"matvec": "matvec_small", "matvec_8": "matvec_8_small"}
"""The same of small matrices, one after the other."""


class DeviceKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The properties that two trials must share for a ceiling of one to apply to the other.

    For a CPU they include the number of usable cores and the number of requested threads (None: not requested).
    """

    platform: str
    name: str
    cores: Positive | None
    threads: Positive | None

    def __str__(self) -> str:
        cores = "" if self.cores is None else f", {count(self.cores, 'core')}"
        threads = "" if self.threads is None else f", --threads={self.threads}"
        return f"{self.name}{cores}{threads}"


class Ceiling(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The highest rate of one resource.

    If it is `thorough`, that is the median and the range over `trials` processes that measured the best size again; if
    it is `quick`, those of the blocks of the best size in one process, and there is no run with its records.
    `execution` is how the framework ran it, in its own word.

    `value`, `low` and `high` are in FLOP/s or bytes/s. `precision` is the type in which products were computed, or the
    type of the numbers that were moved. `params` are those of the best among `searched` sizes. `measured_at` is the
    time of the measurement.
    """

    method: Method
    resource: Resource
    device: DeviceKey
    host: str
    framework: str
    execution: str
    version: str
    precision: str
    value: Annotated[float, Meta(gt=0)]
    low: Annotated[float, Meta(gt=0)]
    high: Annotated[float, Meta(gt=0)]
    trials: Positive
    searched: Positive
    params: dict[str, bool | int | float | str]
    measured_at: str
    run_id: str | None

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "FLOP/s" if self.resource == "compute" else "B/s"


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of ceilings."""

    schema_version: Literal[1]
    ceilings: list[Ceiling]


def key_of(record: Record) -> DeviceKey | None:
    """Return the key of a record's device for looking up ceilings; None if the trial ended before it was known."""
    if record.device is None:
        return None
    if record.device.platform != "cpu":
        return DeviceKey(record.device.platform, record.device.name, None, None)
    cpu = record.machine.cpu
    return DeviceKey("cpu", cpu.model, cpu.usable_cores, record.case.threads)


def computed_in(record: Record) -> str:
    """Return the type in which the products of a record are computed."""
    if record.types is not None:
        return record.types.compute
    name = record.case.precision
    return PRECISIONS[name].compute if name in PRECISIONS else name


@dataclass(frozen=True)
class Ceilings:
    """The known ceilings, and the files that could not be read."""

    known: tuple[Ceiling, ...] = ()
    faults: tuple[Fault, ...] = ()

    def of(self, device: DeviceKey | None, resource: Resource, precision: str | None = None) -> Ceiling | None:
        """Return the highest ceiling of all frameworks; without `precision`, of any type.

        Of each framework and type, the newest thorough one counts, or the newest quick one if there is none.
        """
        return self._highest.get((device, resource, precision))

    @cached_property
    def _highest(self) -> dict[tuple[DeviceKey | None, Resource, str | None], Ceiling]:
        newest = {
            (each.device, each.resource, each.framework, each.precision): each
            for each in sorted(self.known, key=lambda each: (each.method == "thorough", each.measured_at))
        }
        highest: dict[tuple[DeviceKey | None, Resource, str | None], Ceiling] = {}
        for each in sorted(newest.values(), key=lambda each: each.value, reverse=True):
            for precision in (each.precision, None):
                highest.setdefault((each.device, each.resource, precision), each)
        return highest

    def compute(self, record: Record) -> Ceiling | None:
        """Return the compute ceiling (FLOP/s) of the record's device in the type of its products."""
        return self.of(key_of(record), "compute", computed_in(record))

    def memory(self, record: Record) -> Ceiling | None:
        """Return the memory ceiling (bytes/s) of the record's device."""
        return self.of(key_of(record), "memory")

    def lacking(self, record: Record) -> str | None:
        """Return why the record has no roof, with the remedy; None if it has one."""
        precision = computed_in(record)
        if self.compute(record) and self.memory(record):
            return None
        if record.device is None:
            return "the trial ended before the device was known"
        fault = f" ({self.faults[0]})" if self.faults else ""
        threads = f" --threads={record.case.threads}" if record.case.threads and record.device.platform == "cpu" else ""
        return (
            f"no ceiling of {key_of(record)} in {precision} is known{fault}: on that machine, run "
            f"`benchmarker ceilings --precision={precision}{threads}` ({ABOUT})"
        )


def known(results: Iterable[Path] = ()) -> Ceilings:
    """Return the ceilings in the cache and in `results`: runs, folders of runs, or records in their folder.

    A cache that cannot be entered, as in a container with another user's home, is a fault.
    """
    files_read: list[list[Ceiling] | Fault] = []
    try:
        files_read += [read(file) for file in cache().glob("*.json") if file.exists()]
    except OSError as error:
        files_read.append(Fault(cache(), f"{error.strerror}; set {VARIABLE} to a folder that can be read"))
    for result in results:
        for path, content in beside(result, CEILINGS):
            found = content if isinstance(content, Fault) else atomic.parse(path, content, decode)
            files_read.append(found if isinstance(found, Fault) else found.ceilings)
    return Ceilings(
        tuple(ceiling for each in files_read if not isinstance(each, Fault) for ceiling in each),
        tuple(each for each in files_read if isinstance(each, Fault)),
    )


def read(path: Path) -> list[Ceiling] | Fault:
    """Read the ceilings in a file; return a `Fault` if it is invalid."""
    ceilings = atomic.decode(path, decode)
    return ceilings if isinstance(ceilings, Fault) else ceilings.ceilings


def decode(content: bytes) -> File:
    """Decode the content of a file of ceilings; raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=File)


def write(path: Path, ceilings: Sequence[Ceiling]) -> None:
    """Write a file of ceilings atomically; raises OSError."""
    atomic.write(path, encode(ceilings))


def encode(ceilings: Sequence[Ceiling]) -> bytes:
    """Encode ceilings as the content of a file."""
    return atomic.encode(File(1, list(ceilings)))


def cache() -> Path:
    """Return the folder of cached ceilings: the variable `BENCHMARKER_CEILINGS`, or one in the user's cache."""
    if folder := os.environ.get(VARIABLE):
        return Path(folder)
    return platformdirs.user_cache_path("benchmarker") / "ceilings"


def keep(ceilings: Sequence[Ceiling]) -> list[Ceiling]:
    """Store ceilings in the cache, replacing those of the same device, resource, framework and precision.

    A quick one does not replace a thorough one: these are returned. Raises OSError.
    """
    stay = []
    cache().mkdir(parents=True, exist_ok=True)
    for device in dict.fromkeys(each.device for each in ceilings):
        path = cache() / f"{hashlib.sha256(msgspec.json.encode(device)).hexdigest()[:16]}.json"
        before = read(path) if path.exists() else []
        merged = {_what(each): each for each in ([] if isinstance(before, Fault) else before)}
        for ceiling in ceilings:
            known = merged.get(_what(ceiling))
            if ceiling.device == device and ceiling.method == "quick" and known and known.method == "thorough":
                stay.append(known)
            elif ceiling.device == device:
                merged[_what(ceiling)] = ceiling
        write(path, list(merged.values()))
    return stay


def _what(ceiling: Ceiling) -> tuple[str, str, str]:
    return ceiling.resource, ceiling.framework, ceiling.precision
