"""Read numbers from sysfs, and report why they cannot be read."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarker import Channel, NoMeterError, Reading, Reason, Unavailable

GONE = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}
HIDDEN = "in a container, mount the host's /sys and set BENCHMARKER_SYSFS to the mount point"

Source = tuple[Channel, Path]
"""A channel and the file that contains its value, in millionths of the quantity's unit."""


def root() -> Path:
    """Return the path of sysfs: `BENCHMARKER_SYSFS` (for a container with the host's sysfs elsewhere), or /sys."""
    return Path(os.environ.get("BENCHMARKER_SYSFS") or "/sys")


def entries(folder: Path, remedy: str) -> list[str]:
    """Return the names in a folder. Raises `NoMeterError` with the remedy if it cannot be listed."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        reason: Reason = "permission" if _reason(error) == "permission" else "unsupported"
        raise NoMeterError(reason, f"{folder}: {error.strerror}; {remedy}") from error


def word(path: Path) -> str:
    """Return the text of a file, or an empty text if it cannot be read."""
    try:
        return _text(path)
    except OSError:
        return ""


def number(path: Path) -> int | Reason:
    """Return the number in a file, or the reason for none; opened each time, as a driver reset recreates its files."""
    try:
        text = _text(path)
    except OSError as error:
        return _reason(error)
    return int(text) if text.isascii() and text.isdigit() else "sentinel"


def reading(path: Path) -> Reading:
    """Return the number in a file of millionths, converted to units."""
    found = number(path)
    return found / 1e6 if isinstance(found, int) else found


def unavailable(what: str, reason: Reason, *paths: Path) -> Unavailable:
    """Return what cannot be read, with the reason that `number` returned on opening the meter, and the remedy."""
    files = " ".join(map(str, paths))
    if reason == "permission":
        return Unavailable(
            what,
            reason,
            f"readable only by root: run as root, or `chmod a+r {files}`; a udev rule makes this permanent",
        )
    if reason == "lost":
        return Unavailable(what, "unsupported", f"missing: {files}; another version of the kernel may have it")
    return Unavailable(what, "driver", f"contains no number: {files}; reload its driver, or check the kernel log")


def readable(sources: Sequence[Source]) -> tuple[list[Source], list[Unavailable]]:
    """Return the sources that exist, and those that are unavailable. Raises `NoMeterError` if none can be read.

    A source that exists but cannot be read is returned as well, so that sums show that it is missing.
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
