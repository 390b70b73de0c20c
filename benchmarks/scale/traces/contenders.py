"""Ways to compute kernel statistics by name from a trace file, and their cost."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_NS = 1000
_STATISTICS = ("hlo_op", "program_id", "run_id", "correlation_id", "name")
_MOST_BYTES = 1024 if sys.platform == "linux" else 1
"""Bytes per unit of `ru_maxrss`."""


def ours(path: Path) -> Any:
    """The tool itself: its event table, including scopes, phases, launches and everything else that it derives."""
    from benchmarker.traces.ingest import ingest
    from benchmarker.traces.statistics import describe, work

    yield
    found = describe(work(ingest(path).events), ["name"])
    columns = ["name", "count", "total_ns", "mean_ns", "median_ns", "p95_ns"]
    yield {name: values for name, *values in found[columns].itertuples(index=False)}


def json_pandas(path: Path) -> Any:
    """A hand-written script: `json.load`, and a data frame of the kernels."""
    import pandas as pd

    yield
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        events = json.load(file)["traceEvents"]
    frame = pd.DataFrame([event for event in events if event.get("cat") == "kernel"])
    yield _described(frame["name"], (frame["dur"] * _NS).round().astype("int64"))


def hta(path: Path) -> Any:
    """Holistic Trace Analysis, configured to keep nanoseconds."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    import logging

    from hta.common.trace import parse_trace_file

    logging.disable()
    yield
    _, frame, symbols = parse_trace_file(str(path))
    kernels = frame[frame["cat"] == symbols.get_sym_id_map()["kernel"]]
    names = kernels["name"].map(dict(enumerate(symbols.get_sym_table())))
    yield _described(names, (kernels["dur"] * _NS).round().astype("int64"))


def perfetto(path: Path) -> Any:
    """Perfetto's engine, with SQL: the program that the variable PERFETTO names, or one that is found."""
    from benchmarker.traces.sql import open_trace

    engine = Path(os.environ["PERFETTO"]) if "PERFETTO" in os.environ else None
    yield
    with open_trace(path, engine=engine) as trace:
        found = trace.query(
            "SELECT name, count(*) AS number, sum(dur) AS total, avg(dur) AS mean, "
            "percentile(dur, 50) AS median, percentile(dur, 95) AS p95 "
            "FROM slice WHERE category = 'kernel' GROUP BY name"
        )
    yield {name: values for name, *values in found.itertuples(index=False)}


def names_of_device(path: Path) -> Any:
    """`jax.profiler.ProfileData`: only names and durations of the device's events."""
    return _profile_data(path, whole=False)


def profile_data(path: Path) -> Any:
    """`jax.profiler.ProfileData`: every event with its statistics, which show what launched it and why."""
    return _profile_data(path, whole=True)


def _profile_data(path: Path, *, whole: bool) -> Any:
    import pandas as pd
    from jax.profiler import ProfileData

    yield
    rows = []
    for plane in ProfileData.from_file(str(path)).planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines if whole or on_device else ():
            for event in line.events:
                stats = dict(event.stats) if whole else {}
                wanted = (stats.get(name) for name in _STATISTICS) if whole else ()
                rows.append((on_device, event.name, event.start_ns, event.duration_ns, *wanted))
    frame = pd.DataFrame(rows)
    frame = frame[frame[0]]
    yield _described(frame[1], frame[3].round().astype("int64"))


CONTENDERS: dict[str, dict[str, Callable[[Path], Any]]] = {
    "chrome": {"this tool": ours, "json, pandas": json_pandas, "HTA": hta, "perfetto": perfetto},
    "xplane": {"this tool": ours, "ProfileData": profile_data, "ProfileData, names": names_of_device},
}


def measure(contender: Callable[[Path], Any], path: Path) -> dict[str, Any]:
    """Return seconds without imports, peak memory of the process and its engine, and the statistics."""
    steps = contender(path)
    next(steps)
    start = time.perf_counter()
    statistics = next(steps)
    seconds = time.perf_counter() - start
    with suppress(ChildProcessError):  # the memory of an engine counts once its end has been waited for
        os.wait()
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = sum(resource.getrusage(each).ru_maxrss for each in processes) * _MOST_BYTES
    return {"seconds": seconds, "bytes": peak, "statistics": statistics}


def _described(names: Any, took: Any) -> dict[str, list[float]]:
    groups = took.groupby(names.to_numpy())
    found = groups.agg(["count", "sum", "mean", "median"])
    found["p95"] = groups.quantile(0.95)
    return {name: values for name, *values in found.itertuples()}


if __name__ == "__main__":
    kind, name, path = sys.argv[1:]
    print(json.dumps(measure(CONTENDERS[kind][name], Path(path)), default=float))
