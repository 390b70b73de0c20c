"""Check this tool's reading of XPlane files against xprof, an independent reader.

For each HLO instruction, occurrences, total time and self time are compared. For GPUs, occurrences and total time of
each kernel are compared too. Differences are printed. Profilers of CPUs and GPUs write whole nanoseconds, so values
must agree to the picosecond.

xprof does not report ops of CPUs. A CPU thread is therefore presented to it as a TPU core: its instructions and their
times become the line of XLA ops, which xprof nests by itself. xprof does not count the time of an op after its call
has returned. Self times of this tool include that time, so they are compared without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import click
import pandas as pd

from benchmarker.traces.attribution.attribute import attribute
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.formats.reading import Source
from benchmarker.traces.formats.wire import fields, text
from benchmarker.traces.ingest import read
from benchmarker.traces.statistics import describe, work

NESTED = """
import sys, jax, jax.numpy as jnp
def inner(c): return jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x @ x), c)
def loops(x):
    c, sums = jax.lax.scan(lambda c, _: (jnp.tanh(inner(c)) + c.T, c.sum()), x, None, length=6)
    return jax.lax.while_loop(lambda v: v[1] < 4, lambda v: (inner(v[0]), v[1] + 1), (c, 0))[0] + sums.sum()
def branch(x): return jax.lax.cond(x.sum() > 0, inner, jnp.cos, x) @ x
steps, x = [jax.jit(loops), jax.jit(branch)], jnp.ones((64, 64))
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
for step in steps: step(x).block_until_ready()
with jax.profiler.trace(sys.argv[1], profiler_options=options):
    for step in 5 * steps: step(x).block_until_ready()
"""
"""A program whose profile has nested loops, and a loop in a branch."""

ASK = """
import json, sys
from xprof.convert import raw_to_tool_data
ask = lambda tool: raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {"use_saved_result": False})[0]
print(json.dumps([json.loads(ask(tool)) for tool in sys.argv[2:]]))
"""
"""Code for the Python with xprof: print the tables of a file."""

OPS = {"program_id": "program", "hlo_op_name": "name", "occurrences": "count", "total_time": "total_ps"}
OPS["total_self_time"] = "self_ps"
KERNELS = {"kernel_name": "name", "occurrences": "count", "total_duration_us": "total_ps"}
"""Columns of xprof's tables, and their names here."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--xprof-python", default=sys.executable, help="Python interpreter with xprof; by default this one.")
def main(files: tuple[Path, ...], xprof_python: str) -> None:
    """Compare XPlane files; without any, profile GPT-2 and a program with nested loops and compare these."""
    if subprocess.run([xprof_python, "-c", "import xprof"], check=False, capture_output=True).returncode:
        raise click.UsageError(
            "xprof is missing: `pip install xprof` in some environment and name its Python with --xprof-python"
        )
    with tempfile.TemporaryDirectory() as folder:
        tables = [table for path in files or profiles(Path(folder)) for table in compare(path, xprof_python)]
    lines, rows = sum(len(table.both) for table in tables), sum(table.rows for table in tables)
    differing = sum(len(table.differing()) for table in tables)
    verdict = "DIFFERENT" if differing else "EQUAL" if lines else "NOTHING TO COMPARE"
    print(f"{verdict}: {differing} of {lines} lines differ, in {len(tables)} tables of {rows} occurrences")
    sys.exit(verdict != "EQUAL")


def profiles(folder: Path) -> list[Path]:
    """Profile two programs on this machine."""
    words = ["run", "--framework=jax", "--problem=gpt2", "--n-layer=2", "--seq-len=32", "--blocks=2", "--profile"]
    for command in (["-m", "benchmarker", *words, f"--results={folder}"], ["-c", NESTED, str(folder)]):
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
    return sorted([*folder.rglob("*.xplane.pb.gz"), *folder.rglob("*.xplane.pb")])


@dataclass(frozen=True)
class Table:
    """The values of both, one line per op or kernel; NaN if one of them does not have it."""

    both: pd.DataFrame
    rows: int

    def differing(self) -> pd.DataFrame:
        """Return the lines that differ."""
        ours, theirs = (self.both.xs(side, axis=1, level=1) for side in ("ours", "xprof"))
        return self.both[(ours != theirs).any(axis=1)]


def compare(path: Path, xprof_python: str) -> list[Table]:
    """Compare one file, and print the differences."""
    reading = read(path)
    events = attribute(replace(reading, events=reading.events.assign(end_ns=-1))).events
    on_device = bool(events["kind"].isin(ON_DEVICE).any())
    device = reading.events["device"].str
    said = ((reading.events["op"] != "") | device.startswith("tpu:")).to_numpy()
    rows, told = work(events), work(events[said])
    content = b"".join(Source(path).pieces())
    ops, kernels = ask(content if on_device else as_tpu(content), xprof_python)
    late = int((work(reading.events)["end_ns"] >= 0).sum())
    print(
        f"{path.name}: {late} of {len(rows)} rows ended after their call returned; {len(rows) - len(told)} have no op"
    )
    by_program = [
        describe(chosen, ["op"]).assign(program=str(program)) for program, chosen in told.groupby("program_id")
    ]
    found = [table("op", pd.concat(by_program).rename(columns={"op": "name"}), pick(ops, OPS))]
    if device.startswith("gpu:").any():
        named = pick(kernels, KERNELS)
        known = rows[(rows["kind"] == "kernel") | rows["name"].isin(named["name"])]
        found.append(table("kernel", describe(known, ["name"]), named))
    return found


def table(what: str, ours: pd.DataFrame, theirs: pd.DataFrame) -> Table:
    """Join the lines of both sides, and print those that differ."""
    key = [name for name in ("program", "name") if name in theirs]
    numbers = [name for name in theirs if name not in key]
    ours = ours.assign(total_ps=ours["total_ns"] * 1000, self_ps=ours["self_ns"] * 1000)
    sides = {"ours": ours, "xprof": theirs}
    both = pd.concat({side: each.groupby(key)[numbers].sum() for side, each in sides.items()}, axis=1).swaplevel(axis=1)
    found = Table(both.sort_index(axis=1), int(ours["count"].sum()))
    differing = found.differing()
    enclosing = int((ours["self_ps"] < ours["total_ps"]).sum())
    print(
        f"  {what}s: {len(both)}, with {found.rows} occurrences; {enclosing} enclose others; "
        f"{len(differing)} differ in {', '.join(numbers)}"
    )
    if len(differing):
        print(differing.to_string(float_format="{:.0f}".format))
    return found


def ask(content: bytes, xprof_python: str) -> list[dict[str, Any]]:
    """Return xprof's tables of ops and kernels, from a temporary folder because it writes files next to its input."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.xplane.pb"
        path.write_bytes(content)
        words = [xprof_python, "-c", ASK, str(path), "hlo_stats", "kernel_stats"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"xprof failed:\n{done.stderr}")
    tables: list[dict[str, Any]] = json.loads(done.stdout)
    return tables


def pick(answer: dict[str, Any], names: dict[str, str]) -> pd.DataFrame:
    """Return columns of an xprof table, with times in whole picoseconds."""
    columns = [column["id"] for column in answer["cols"]]
    rows = [[cell["v"] for cell in row["c"]] for row in answer["rows"]]
    found = pd.DataFrame(rows, columns=columns)[list(names)].rename(columns=names)
    times = [name for name in found if name.endswith("_ps")]
    found[times] = (found[times].astype(float) * 1e6).round()
    return found.astype(dict.fromkeys([*times, "count"], "int64"))


def as_tpu(content: bytes) -> bytes:
    """Return an XPlane file with the same programs, and the ops of each thread as those of a TPU core."""
    planes = []
    number = count()
    for plane in every(memoryview(content), 1):
        name = text(every(plane, 2)[0])
        if name == "/host:metadata":
            planes.append(part(1, bytes(plane)))
        if name == "/host:CPU":
            named = [dict(fields(every(value, 2)[0])) for value in every(plane, 5)]
            texts = {each.get(1, 0): text(each.get(2, 0)) for each in named}
            planes += [part(1, made) for line in every(plane, 3) if (made := core(line, texts, number))]
    return b"".join(planes)


def core(line: memoryview, texts: dict[Any, str], number: count[int]) -> bytes:
    """Return a TPU core's plane with the instructions of a thread; empty if the thread has none."""
    ops: dict[tuple[int, str], int] = {}
    made = [part(2, "XLA Ops"), *(part(3, start) for start in every(line, 3))]
    for event in every(line, 4):
        stats = {}
        for statistic in every(event, 4):
            held = dict(fields(statistic))
            stats[texts[held.pop(1)]] = held
        if "hlo_op" in stats:
            op = stats["hlo_op"]
            key = (integer(stats["program_id"]), texts[op[7]] if 7 in op else text(op[5]))
            times = [part(field, value) for field in (2, 3) for value in every(event, field)]
            made.append(part(4, b"".join([part(1, ops.setdefault(key, len(ops) + 1)), *times])))
    if not ops:
        return b""
    parts = [part(2, f"/device:TPU:{next(number)}"), part(3, b"".join(made))]
    for (program, name), index in ops.items():
        says = [part(1, 1) + part(3, program), part(1, 2) + part(3, index), part(1, 3) + part(5, "op")]
        parts.append(entry(4, index, part(2, name) + b"".join(part(5, each) for each in says)))
    names = enumerate(("program_id", "symbol_id", "hlo_category"), 1)
    return b"".join([*parts, *(entry(5, index, part(2, name)) for index, name in names)])


def every(message: memoryview, field: int) -> list[Any]:
    """Return the values of one field of a message."""
    return [value for number, value in fields(message) if number == field]


def integer(held: dict[int, Any]) -> int:
    """Return the number of a statistic, signed or unsigned."""
    return int(held.get(3, held.get(4, 0)))


def entry(field: int, index: int, value: bytes) -> bytes:
    """Return an entry of a plane's map of event or statistic metadata, which are referred to by number."""
    return part(field, part(1, index) + part(2, part(1, index) + value))


def part(field: int, value: int | str | bytes) -> bytes:
    """Encode a field of a message."""
    if isinstance(value, int):
        return number_of(field << 3) + number_of(value)
    held = value.encode() if isinstance(value, str) else value
    return number_of(field << 3 | 2) + number_of(len(held)) + held


def number_of(value: int) -> bytes:
    """Encode an unsigned integer as a varint, in groups of seven bits."""
    low = value & 127
    return bytes([low]) if value < 128 else bytes([low | 128]) + number_of(value >> 7)


if __name__ == "__main__":
    main()
