"""Numbers in sysfs: where it is, reading them, and saying why there are none."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarker import Channel, NoMeterError, Reading, Reason, Unavailable

GONE = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}
HIDDEN = "in a container, mount the host's /sys and set BENCHMARKER_SYSFS to where it is"

Source = tuple[Channel, Path]
"""A channel and the file with its number, in millionths of the quantity's unit."""


def root() -> Path:
    """Where sysfs is: `BENCHMARKER_SYSFS`, for a container that has the host's elsewhere, or /sys."""
    return Path(os.environ.get("BENCHMARKER_SYSFS") or "/sys")


def entries(folder: Path, remedy: str) -> list[str]:
    """Names in a folder; raises `NoMeterError` with the remedy where it cannot be listed."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        reason: Reason = "permission" if _reason(error) == "permission" else "unsupported"
        raise NoMeterError(reason, f"{folder}: {error.strerror}; {remedy}") from error


def word(path: Path) -> str:
    """Text of a file, empty where it cannot be read."""
    try:
        return _text(path)
    except OSError:
        return ""


def number(path: Path) -> int | Reason:
    """Number in a file, or why there is none; opened each time, as a driver that is reset makes its files anew."""
    try:
        text = _text(path)
    except OSError as error:
        return _reason(error)
    return int(text) if text.isascii() and text.isdigit() else "sentinel"


def reading(path: Path) -> Reading:
    """Number in a file of millionths, in whole units."""
    found = number(path)
    return found / 1e6 if isinstance(found, int) else found


def unavailable(what: str, reason: Reason, *paths: Path) -> Unavailable:
    """What cannot be read, for the reason that `number` gave when the meter was opened, and the remedy."""
    files = " ".join(map(str, paths))
    if reason == "permission":
        return Unavailable(
            what, reason, f"for root alone: run as root, or `chmod a+r {files}`, which a udev rule makes last"
        )
    if reason == "lost":
        return Unavailable(what, "unsupported", f"not there: {files}; another version of the kernel may have it")
    return Unavailable(
        what, "driver", f"gives no number: {files}; load its driver again, or look into the kernel's log"
    )


def readable(sources: Sequence[Source]) -> tuple[list[Source], list[Unavailable]]:
    """Those that are there, and what is unavailable, where one gives no number; raises `NoMeterError` where none does.

    One that is there and cannot be read is kept beside others that can: what it would add is seen to be missing.
    """
    refused = [(channel.id, value, path) for channel, path in sources if not isinstance(value := number(path), int)]
    if len(refused) == len(sources):
        reasons = [reason for _, reason, _ in refused]
        first: Reason = "permission" if "permission" in reasons else reasons[0]
        why = unavailable("", first, *(path for _, reason, path in refused if reason == first))
        raise NoMeterError(why.reason, why.message)
    absent = {path for _, reason, path in refused if reason == "lost"}
    return [(channel, path) for channel, path in sources if path not in absent], [
        unavailable(*each) for each in refused
    ]


def _text(path: Path) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096).decode(errors="replace").strip()
    finally:
        os.close(file)


def _reason(error: OSError) -> Reason:
    if isinstance(error, PermissionError):
        return "permission"
    return "lost" if error.errno in GONE else "driver"
