"""The annotated trace of a profile as a file, written again if the profile is newer."""

from __future__ import annotations

from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.traces import profile_files
from benchmarker.traces.perfetto import annotated


def write(result: Path, output: Path | None = None) -> Path:
    """Write the annotated trace of a result, unless it exists and is newer than its source; returns its path."""
    path = output or profile_files.annotated_path(result)
    if output and not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}; create it first")
    if output or not _is_newer(path, result):
        annotated.write(profile_files.events_of(result), path)
    return path


def _is_newer(path: Path, source: Path) -> bool:
    """Whether a file is newer than its source and, if the source is a folder, than every file in it."""
    try:
        sources = [source, *(source.rglob("*") if source.is_dir() else ())]
        newest: int = max(each.stat().st_mtime_ns for each in sources if each != path)
        return path.stat().st_mtime_ns >= newest
    except OSError:
        return False
