"""Compare waits of streams, queues, launch delays and overlap with Holistic Trace Analysis (HTA).

Differences that docs/traces.md explains are not removed: both sides are printed. HTA 0.5.0 needs pandas 2.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarker.traces.ingest import ingest
from benchmarker.traces.intervals import union_ns
from benchmarker.traces.wall_time import COMMUNICATION, launch_rows, launches, on_device, streams

ASK = """
import os, sys, json, logging, warnings
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(); warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="", include_last_profiler_step=True)
idle = found.get_idle_time_breakdown(visualize=False)[0]
made = {f"stream {row.stream} {row.idle_category}": row.idle_time for row in idle.itertuples()}
queue = found.get_queue_length_summary()
made |= {f"stream {stream} longest queue": row["queue_length", "max"] for (_, stream), row in queue.iterrows()}
delays = found.get_cuda_kernel_launch_stats(visualize=False)[0]["launch_delay"]
made |= {"launches": len(delays), "median launch delay": delays.median(), "longest launch delay": delays.max()}
overlap = found.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0]
made = {name: float(value) for name, value in {**made, "overlap": overlap}.items()}
print(json.dumps({name: value for name, value in made.items() if value == value}))
"""
"""Code for the Python with HTA: print its figures for a file, in µs and %."""
KNOWN = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"]
"""The calls that HTA counts."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--hta", "python", default=sys.executable, help="Python interpreter with HolisticTraceAnalysis.")
def main(files: tuple[Path, ...], python: str) -> None:
    """Print the figures of HTA and of this tool for traces of PyTorch, in µs and %."""
    for path in files:
        asked = subprocess.run([python, "-c", ASK, path], check=True, capture_output=True, text=True)
        theirs = json.loads(asked.stdout.splitlines()[-1])
        ours = dict(_ours(path))
        print(f"\n{path.name}\n{'':32} {'HTA':>14} {'here':>14}")
        for name in {**theirs, **ours}:
            print(f"{name:32} {_text(theirs.get(name)):>14} {_text(ours.get(name)):>14}")


def _ours(path: Path) -> Iterator[tuple[str, float]]:
    events = ingest(path).events
    rows = on_device(events)
    if (events["kind"] == "step").sum() > 1:  # HTA then leaves out work without launch
        rows = rows[launch_rows(events, rows) >= 0]
    for line in streams(events, rows).to_dict("records"):
        for name in ("host_wait", "kernel_wait", "other"):
            yield f"{line['stream']} {name}", line[f"{name}_ns"] / 1000
        yield f"{line['stream']} longest queue", line["queue_max"]
    calls = launches(events, rows)
    delay = calls[events["name"].loc[calls["call"]].isin(KNOWN).to_numpy()]["delay_ns"] / 1000
    yield from {
        "launches": len(delay),
        "median launch delay": delay.median(),
        "longest launch delay": delay.max(),
    }.items()
    moves, computes = (
        rows["category"] == COMMUNICATION,
        (rows["kind"] == "kernel") & (rows["category"] != COMMUNICATION),
    )
    if moves.any():
        both = _union(rows[moves]) + _union(rows[computes]) - _union(rows[moves | computes])
        yield "overlap", 100 * both / _union(rows[moves])


def _union(rows: Any) -> int:
    return union_ns(rows["ts_ns"].to_numpy(), (rows["ts_ns"] + rows["dur_ns"]).to_numpy())


def _text(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:,.2f}"


if __name__ == "__main__":
    main()
