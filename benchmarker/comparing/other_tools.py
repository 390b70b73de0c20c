"""Series from the files of other tools: asv, pytest-benchmark, hyperfine, Google Benchmark and nvbench.

One file is one run, and the results of asv are a folder of them. What these tools measured is taken as it is. None has
what a verdict needs, so a series of them can only raise a suspicion.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarker.api.errors import UserError
from benchmarker.comparing.history import COMMIT, DATE, HOST, Run, Series, axis_of, label_of, with_points
from benchmarker.files import regular
from benchmarker.records.factors import Value

TIME = "time_s"
"""The metric of most tools, and of asv the one that is read unless another is asked for."""
ONE_PROCESS = "all its times of a run are from one process, so the variation between processes is not known"
LACKS = {
    "pytest-benchmark": ONE_PROCESS,
    "hyperfine": "it says neither when, nor where, nor of which commit; runs are in the order in which they are named",
    "Google Benchmark": f"{ONE_PROCESS}; it says no commit",
    "nvbench": f"{ONE_PROCESS}; it says neither when, nor where, nor of which commit; runs are in the order in which "
    "they are named",
    "asv": "it does not say which of its times are from which process, so the variation between processes is not "
    "known; dates are those of the commits",
}
_KEYS = {
    "asv": {"commit_hash", "params", "results"},
    "pytest-benchmark": {"machine_info", "commit_info", "benchmarks"},
    "hyperfine": {"results"},
    "Google Benchmark": {"context", "benchmarks"},
    "nvbench": {"meta", "devices", "benchmarks"},
}
"""What a file of each tool has at its top; the first that fits is meant."""
_UNKNOWN = f"neither a record nor a file of {', '.join(LACKS)}"
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_OLD_DATE = "%Y/%m/%d-%H:%M:%S"
"""Dates of Google Benchmark before 1.5, in local time."""
_MACHINE, _BENCHMARKS = "machine.json", "benchmarks.json"
"""Files in the results of asv that are no results."""
_ASV_VERSION, _NVBENCH_VERSION = 2, 1
_DIGITS = 12
"""So many digits of a digest are shown."""
_KINDS = {"time": (TIME, "s"), "peakmem": ("peak_memory_bytes", "B"), "mem": ("memory_bytes", "B")}
"""Metric and unit of a benchmark of asv, by what its function's name begins with."""


class _Measured(NamedTuple):
    """What a file says of one name: values, one for each process, and what they are; none if it failed.

    `apart` is what else distinguishes series of this name.
    """

    values: Sequence[float]
    metric: str = TIME
    unit: str = "s"
    apart: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """What a file says: the tool that wrote it, when and where it measured, and what by name."""

    tool: str
    stem: str
    started_at: str
    around: Mapping[str, Value]
    measured: Mapping[str, _Measured]


def tool_of(path: Path) -> str:
    """Return the tool that wrote a file or a folder of results; empty if it is none of these."""
    if path.is_dir():
        return "asv" if next(path.glob(_MACHINE), None) or next(path.glob(f"*/{_MACHINE}"), None) else ""
    if path.suffix != ".json" or not path.is_file():
        return ""
    try:
        return _tool_of(_decoded(path))
    except UserError:
        return ""


def _tool_of(content: Any) -> str:
    keys = set(content) if isinstance(content, dict) else set()
    return next((tool for tool, needed in _KEYS.items() if needed <= keys), "")


def series_of(results: Sequence[Path], by: str, metric: str | None = None) -> list[Series]:
    """Return a series for each name of each tool that has the metric, by default the time.

    Runs are in the order of time, or as named if a file has no time. Raises `UserError` with the file if it is not as
    its tool writes it, if no file knows `by`, or if none has the metric.
    """
    read = [_read(path) for path in _files(results)]
    axis = axis_of(by, (file.around for file in read))
    if all(file.started_at for file in read):
        read.sort(key=lambda file: file.started_at)
    groups: dict[tuple[_Name, str, str], list[Run]] = {}
    for file in read:
        host = [(HOST, str(file.around.get(HOST)))] if axis == HOST else []
        is_dated = file.started_at or axis not in (DATE, HOST)
        label = label_of(file.started_at, file.around, axis) if is_dated else file.stem
        for name, measured in file.measured.items():
            logs = tuple(math.log(value) for value in measured.values if 0 < value < math.inf)
            if logs:
                whole = tuple({"tool": file.tool, "name": name, **dict([*host, *measured.apart])}.items())
                run = Run(label, file.stem, file.started_at, logs, file.around)
                groups.setdefault((whole, measured.metric, measured.unit), []).append(run)
    known = dict.fromkeys(each for _, each, _ in groups)
    wanted = metric or (TIME if TIME in known else next(iter(known), TIME))
    if wanted not in known:
        raise UserError(f"no file has a {wanted} above 0; they have: {', '.join(known) or 'nothing else'}")
    shown = _shown([name for name, each, _ in groups if each == wanted], {HOST} if axis == HOST else set())
    return [
        with_points(
            Series(
                case={**dict(name)},
                metric=wanted,
                unit=unit,
                better="lower",
                name=shown[name],
                lacks=f"{name[0][1]}: {LACKS[name[0][1]]}",
            ),
            runs,
            axis,
        )
        for (name, each, unit), runs in groups.items()
        if each == wanted
    ]


_Name = tuple[tuple[str, str], ...]
"""The tool, the name, and what else distinguishes a series."""


def _shown(names: Sequence[_Name], always: set[str]) -> dict[_Name, str]:
    """Return what series are called: what distinguishes those of one name is said if there are several."""
    alike: dict[_Name, list[_Name]] = {}
    for name in names:
        alike.setdefault(name[:2], []).append(name)
    shown = {}
    for first, several in alike.items():
        for name in several:
            varied = always | {key for key, value in name if any(dict(one).get(key) != value for one in several)}
            shown[name] = ", ".join([first[1][1], *(f"{key} {value}" for key, value in name[2:] if key in varied)])
    return shown


def _files(results: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of results; those in a folder are of asv."""
    for result in results:
        if result.is_dir():
            if not (machines := [*result.glob(_MACHINE), *result.glob(f"*/{_MACHINE}")]):
                raise UserError(f"{result}: not the results of asv; give records and files of other tools separately")
            yield from sorted(
                file
                for machine in machines
                for file in machine.parent.glob("*.json")
                if file.name not in (_MACHINE, _BENCHMARKS)
            )
        else:
            yield result


def _decoded(path: Path) -> Any:
    """Return the content of a JSON file, which may have NaN in it; raises `UserError`."""
    try:
        return json.loads(regular.content(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {_UNKNOWN}, as it is no JSON: {error}") from error


def _read(path: Path) -> _File:
    content = _decoded(path)
    tool = _tool_of(content)
    if not tool:
        raise UserError(f"{path}: {_UNKNOWN}")
    try:
        started_at, around, measured = _asv(content, path) if tool == "asv" else _READERS[tool](content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not as {tool} writes it: {type(error).__name__} {error}") from error
    return _File(tool, path.stem, started_at, around, measured)


_Content = tuple[str, dict[str, "Value"], dict[str, _Measured]]


def _asv(content: dict[str, Any], path: Path) -> _Content:
    """Return the results of a commit in an environment; the values of parameters are in brackets after the name.

    The columns of a row are those of `result_columns`, without the last ones that are null. Of a benchmark with
    parameters, `result` has a value for each combination of them: null if it failed, NaN if it was skipped. Machines,
    environments and versions of a benchmark are apart.
    """
    if content["version"] != _ASV_VERSION:
        raise ValueError(f"version {content['version']} of the format, not {_ASV_VERSION}: `asv update` may convert it")
    machine, commit, date = content["params"], content["commit_hash"], content.get("date")
    around: dict[str, Value] = {HOST: machine["machine"], COMMIT: commit[:_DIGITS]}
    for several in (machine, content.get("env_vars") or {}):  # the requirements are among those of the machine
        around |= {name: str(value) for name, value in several.items() if name != "machine"}
    described = next((file for up in path.absolute().parents[:2] if (file := up / _BENCHMARKS).is_file()), None)
    known = _decoded(described) if described else {}
    measured = {}
    for name, row in content["results"].items():
        columns = dict(zip(content["result_columns"], row, strict=False))
        values, params = columns["result"] or [], columns["params"] or []
        if values and len(values) != math.prod(map(len, params)):
            raise ValueError(f"{len(values)} results of {name}, which has other parameters")
        metric, unit = _kind(name, known.get(name) or {})
        apart = [(HOST, machine["machine"]), ("environment", content["env_name"])]
        apart.append(("version", str(columns.get("version"))[:_DIGITS]))
        for combination, value in zip(itertools.product(*params), values, strict=False):
            full = f"{name}({', '.join(map(str, combination))})" if combination else name
            measured[full] = _Measured([] if value is None else [float(value)], metric, unit, tuple(apart))
    started_at = "" if date is None else f"{datetime.fromtimestamp(date / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return started_at, around, measured


def _kind(name: str, described: Mapping[str, Any]) -> tuple[str, str]:
    """Return the metric and unit of a benchmark of asv; a number that it tracks has the name of its unit."""
    kind = str(described.get("type") or name.rpartition(".")[2]).lower()
    found = next((known for start, known in _KINDS.items() if kind.startswith(start)), None)
    return found or (str(described.get("unit") or "unit"), "")


def _pytest_benchmark(content: dict[str, Any]) -> _Content:
    machine, commit = content["machine_info"], content["commit_info"]
    known = commit.get("id") not in (None, "unversioned", "unknown")
    around = {
        HOST: machine.get("node"),
        COMMIT: f"{commit['id'][:_DIGITS]}{'+changes' * bool(commit.get('dirty'))}" if known else None,
        "python": machine.get("python_version"),
        "kernel": machine.get("release"),
        "processor": (machine.get("cpu") or {}).get("brand_raw"),
        "pytest_benchmark": content.get("version"),
    }
    measured = {each["fullname"]: _Measured([float(each["stats"]["median"])]) for each in content["benchmarks"]}
    return _utc(content.get("datetime", "")), around, measured


def _hyperfine(content: dict[str, Any]) -> _Content:
    """Return the times of each command, each of a process."""
    measured = {}
    for each in content["results"]:
        words = [str(each["command"]), *(f"{name}={value}" for name, value in (each.get("parameters") or {}).items())]
        measured[" ".join(words)] = _Measured([float(time_s) for time_s in each.get("times") or [each["median"]]])
    return "", {}, measured


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
    medians |= {name: median(of) for name, of in repetitions.items()}
    measured = {name: _Measured([time_s]) for name, time_s in medians.items()}
    return _utc(context.get("date", "")), around, measured


def _nvbench(content: dict[str, Any]) -> _Content:
    """Return the mean time of each state on the GPU, or on the CPU if nothing ran on a GPU.

    A state is named by its benchmark and its values of the axes, and by its device if there are several. Numbers are
    texts; lists that are empty may be null.
    """
    versions = content["meta"]["version"]
    if int(versions["json"]["major"]) != _NVBENCH_VERSION:
        raise ValueError(f"version {versions['json']['string']} of the format is not {_NVBENCH_VERSION}")
    devices = content["devices"] or []
    around: dict[str, Value] = {
        "device_name": ", ".join(dict.fromkeys(str(device["name"]) for device in devices)) or None,
        "ecc": ", ".join(dict.fromkeys(str(device["ecc_state"]) for device in devices)) or None,
        "nvbench": str(versions["nvbench"]["string"]),
    }
    measured = {}
    for benchmark in content["benchmarks"] or []:
        for state in benchmark["states"] or []:
            words = [f"{axis['name']}={axis['value']}" for axis in state["axis_values"] or []]
            device = [f"device={state['device']}"] if len(devices) > 1 else []
            found = {summary["tag"]: summary.get("data") for summary in state["summaries"] or []}
            data = found.get("nv/cold/time/gpu/mean") or found.get("nv/cpu_only/time/cpu/mean") or []
            values = [float(each["value"]) for each in data if each["name"] == "value" and each["value"] is not None]
            measured[" ".join([str(benchmark["name"]), *words, *device])] = _Measured(values)
    return "", around, measured


_READERS: Mapping[str, Callable[[dict[str, Any]], _Content]] = {
    "pytest-benchmark": _pytest_benchmark,
    "hyperfine": _hyperfine,
    "Google Benchmark": _google_benchmark,
    "nvbench": _nvbench,
}


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
