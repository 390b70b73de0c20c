"""Series from the JSON files of other tools: pytest-benchmark, hyperfine and Google Benchmark; one file is one run.

Their times are taken as they are. None has what a verdict needs, so a series of them can only raise a suspicion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.comparing.history import COMMIT, DATE, HOST, Run, Series, axis_of, label_of, with_points

if TYPE_CHECKING:
    from benchmarker.records.factors import Value

ONE_PROCESS = "all its times of a run are from one process, so the variation between processes is not known"
LACKS = {
    "pytest-benchmark": ONE_PROCESS,
    "hyperfine": "it says neither when, nor where, nor of which commit; runs are in the order in which they are named",
    "Google Benchmark": f"{ONE_PROCESS}; it says no commit",
}
_KEYS = {
    "pytest-benchmark": {"machine_info", "commit_info", "benchmarks"},
    "hyperfine": {"results"},
    "Google Benchmark": {"context", "benchmarks"},
}
"""What a file of each tool has at its top."""
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_OLD_DATE = "%Y/%m/%d-%H:%M:%S"
"""Dates of Google Benchmark before 1.5, in local time."""


@dataclass(frozen=True, slots=True)
class _File:
    """What one file says: its times by name, s, one for each process, and when and where they were measured."""

    tool: str
    stem: str
    started_at: str
    around: Mapping[str, Value]
    times_s: Mapping[str, Sequence[float]]


def tool_of(path: Path) -> str:
    """Return the tool that wrote a file; empty if it is none of these."""
    if path.suffix != ".json" or not path.is_file():
        return ""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return ""
    keys = set(content) if isinstance(content, dict) else set()
    return next((tool for tool, needed in _KEYS.items() if needed <= keys), "")


def series_of(files: Sequence[Path], by: str) -> list[Series]:
    """Return a series for each name of each tool; runs are in the order of time, or as named if a file has no time.

    Raises `UserError` with the file if it is not as its tool writes it, or if no file knows `by`.
    """
    read = [_read(path) for path in files]
    axis = axis_of(by, (file.around for file in read))
    if all(file.started_at for file in read):
        read.sort(key=lambda file: file.started_at)
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for file in read:
        host = str(file.around[HOST]) if axis == HOST else ""
        label = (
            label_of(file.started_at, file.around, axis) if file.started_at or axis not in (DATE, HOST) else file.stem
        )
        for name, times_s in file.times_s.items():
            logs = tuple(math.log(time_s) for time_s in times_s if time_s > 0)
            if logs:
                run = Run(label, file.stem, file.started_at, logs, file.around)
                groups.setdefault((file.tool, name, host), []).append(run)
    if not groups:
        raise UserError("no file has a time above 0")
    return [
        with_points(
            Series(
                case={"tool": tool, "name": name, **({HOST: host} if host else {})},
                metric="time_s",
                unit="s",
                better="lower",
                name=f"{name} on {host}" if host else name,
                lacks=f"{tool}: {LACKS[tool]}",
            ),
            runs,
            axis,
        )
        for (tool, name, host), runs in groups.items()
    ]


def _read(path: Path) -> _File:
    tool = tool_of(path)
    if not tool:
        raise UserError(f"{path}: neither a record nor a file of {', '.join(LACKS)}")
    content = msgspec.json.decode(path.read_bytes())
    readers = {"pytest-benchmark": _pytest_benchmark, "hyperfine": _hyperfine, "Google Benchmark": _google_benchmark}
    try:
        started_at, around, times_s = readers[tool](content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: not as {tool} writes it: {type(error).__name__} {error}") from error
    return _File(tool, path.stem, started_at, around, times_s)


_Content = tuple[str, dict[str, "Value"], dict[str, list[float]]]


def _pytest_benchmark(content: dict[str, Any]) -> _Content:
    machine, commit = content["machine_info"], content["commit_info"]
    known = commit.get("id") not in (None, "unversioned", "unknown")
    around = {
        HOST: machine.get("node"),
        COMMIT: f"{commit['id'][:12]}{'+changes' * bool(commit.get('dirty'))}" if known else None,
        "python": machine.get("python_version"),
        "kernel": machine.get("release"),
        "processor": (machine.get("cpu") or {}).get("brand_raw"),
        "pytest_benchmark": content.get("version"),
    }
    times_s = {each["fullname"]: [float(each["stats"]["median"])] for each in content["benchmarks"]}
    return _utc(content.get("datetime", "")), around, times_s


def _hyperfine(content: dict[str, Any]) -> _Content:
    """Return the times of each command, each of a process."""
    times_s = {}
    for each in content["results"]:
        words = [str(each["command"]), *(f"{name}={value}" for name, value in (each.get("parameters") or {}).items())]
        times_s[" ".join(words)] = [float(time_s) for time_s in each.get("times") or [each["median"]]]
    return "", {}, times_s


def _google_benchmark(content: dict[str, Any]) -> _Content:
    """Return the median of the repetitions of each benchmark, or the aggregate of this name if there are no others."""
    context = content["context"]
    around: dict[str, Value] = {
        HOST: context.get("host_name"),
        "library_build_type": context.get("library_build_type"),
        "cpu_scaling_enabled": context.get("cpu_scaling_enabled"),
        "num_cpus": context.get("num_cpus"),
    }
    repetitions: dict[str, list[float]] = {}
    medians = {}
    for each in content["benchmarks"]:
        if each.get("error_occurred"):
            continue
        name = str(each.get("run_name", each["name"]))
        time_s = float(each["real_time"]) * _UNITS[each["time_unit"]] if "real_time" in each else 0.0
        if each.get("run_type", "iteration") == "iteration":
            repetitions.setdefault(name, []).append(time_s)
        elif each.get("aggregate_name") == "median":
            medians[name] = time_s
    return (
        _utc(context.get("date", "")),
        around,
        {
            name: [time_s]
            for name, time_s in {**medians, **{name: median(of) for name, of in repetitions.items()}}.items()
        },
    )


def _utc(date: str) -> str:
    """Return a date as UTC, ISO 8601, to the second; without a zone it is taken as UTC. Empty if it is none."""
    for parse in (datetime.fromisoformat, lambda each: datetime.strptime(each, _OLD_DATE)):
        try:
            parsed = parse(date)
        except ValueError:
            continue
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ""
