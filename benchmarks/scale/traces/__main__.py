"""Compare the cost of computing kernel statistics from a profiler's file with other tools; see `--help`."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from contenders import CONTENDERS  # noqa: E402

_MIB = 1 << 20
_HUGE = 10_000_000
_MOST_BYTES = 8 * 2**30


@click.command()
@click.option("--slices", default=1_000_000, show_default=True, help="Slices of the PyTorch trace.")
@click.option("--events", default=2_000_000, show_default=True, help="Events of the JAX trace.")
@click.option("--repeats", default=3, show_default=True, help="Runs of each contender.")
@click.option("--hta", "hta_python", default=sys.executable, help="Python interpreter with HolisticTraceAnalysis.")
@click.option("--scale", is_flag=True, help="Only this tool, at these sizes and at two and four times these sizes.")
@click.option("--huge", is_flag=True, help="Only this tool, at 10,000,000 each; fails if it needs 8 GiB.")
def main(slices: int, events: int, repeats: int, hta_python: str, scale: bool, huge: bool) -> None:
    """Print seconds and peak memory for computing count, total, mean, median and p95 of each kernel in a trace.

    Each run is a fresh process, in random order; imports are not counted. All tools must give the same statistics.
    The variable PERFETTO names the trace_processor_shell to use.
    """
    sizes = {"chrome": slices, "xplane": events}
    if scale or huge:
        _alone({kind: [_HUGE] if huge else [size, 2 * size, 4 * size] for kind, size in sizes.items()}, huge)
        return
    for kind, size in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            path = _generated(Path(folder), kind, size)
            _compare(kind, path, size, repeats, hta_python)


def _generated(folder: Path, kind: str, size: int) -> Path:
    """Generate a trace file, in a separate process because child processes inherit this one's peak memory."""
    endings = {"chrome": ".json.gz" if size >= _HUGE else ".json", "xplane": ".xplane.pb"}
    path = folder / f"trace{endings[kind]}"
    subprocess.run([sys.executable, HERE / "generate.py", kind, path, str(size)], check=True)
    return path


def _compare(kind: str, path: Path, size: int, repeats: int, hta_python: str) -> None:
    print(f"\n{kind}: {size:,} events, {path.stat().st_size / 2**20:.0f} MiB")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS[kind]}
    rng = random.Random(0)
    for _ in range(repeats):
        for name in rng.sample(sorted(found), len(found)):
            run = _run(kind, name, path, hta_python)
            if isinstance(run, str):
                print(f"{name} is skipped: {run}")
                del found[name]
            else:
                found[name].append(run)
    reference, *_ = found.values()
    _agree({name: runs[0]["statistics"] for name, runs in found.items()}, reference[0]["statistics"])
    print(f"{'':20} {'seconds':>8} {'ratio':>6} {'events/s':>10} {'peak memory':>12} {'ratio':>6}")
    for name, runs in found.items():
        seconds, peak = (statistics.median(run[what] for run in runs) for what in ("seconds", "bytes"))
        slower, larger = (
            statistics.median(run[what] / own[what] for run, own in zip(runs, reference, strict=True))
            for what in ("seconds", "bytes")
        )
        print(
            f"{name:20} {seconds:8.1f} {slower:6.2f} {size / seconds:10,.0f} {peak / _MIB:8.0f} MiB {larger:6.2f}",
            flush=True,
        )


def _run(kind: str, name: str, path: Path, hta_python: str) -> dict[str, Any] | str:
    """Return the result of a process, or why there is none."""
    python = hta_python if name == "HTA" else sys.executable
    words: list[str | Path] = [python, HERE / "contenders.py", kind, name, path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no error message"])[-1]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _agree(all_statistics: dict[str, dict[str, list[float]]], expected: dict[str, list[float]]) -> None:
    """Check that counts and totals agree to the nanosecond, means and quantiles to a relative 1e-9."""
    for contender, found in all_statistics.items():
        assert found.keys() == expected.keys(), f"{contender} finds different kernels"
        for name, (count, total, *rest) in found.items():
            assert [count, total] == expected[name][:2], f"{contender}: {name}"
            close = (math.isclose(a, b, rel_tol=1e-9) for a, b in zip(rest, expected[name][2:], strict=True))
            assert all(close), f"{contender}: {name}: {rest} instead of {expected[name][2:]}"


def _alone(sizes: dict[str, list[int]], limited: bool) -> None:
    print(f"{'':8} {'events':>12} {'file':>8} {'seconds':>8} {'peak memory':>12} {'bytes per event':>15}")
    for kind, each in sizes.items():
        for size in each:
            with tempfile.TemporaryDirectory() as folder:
                path = _generated(Path(folder), kind, size)
                run = _run(kind, "this tool", path, sys.executable)
                assert not isinstance(run, str), run
                print(
                    f"{kind:8} {size:12,} {path.stat().st_size / 2**20:5.0f} MiB {run['seconds']:8.1f} "
                    f"{run['bytes'] / _MIB:8.0f} MiB {run['bytes'] / size:15.0f}",
                    flush=True,
                )
            assert not limited or run["bytes"] < _MOST_BYTES, f"it needs {run['bytes']} bytes"


if __name__ == "__main__":
    main()
