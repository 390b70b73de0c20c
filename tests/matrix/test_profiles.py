"""Profiles of real runs: every scope as often as its problem says, and its time where it belongs."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import trace_processor
from support.models import problem_of

from benchmarker import Record, load_events
from benchmarker.hooks import parameters
from benchmarker.records.reading import read
from benchmarker.traces.ingest import ingest
from benchmarker.traces.profile_files import open_trace
from benchmarker.traces.statistics import describe, work
from benchmarker.traces.summary import inclusive

pytestmark = pytest.mark.slow
LAYERS, STEPS = 2, 3
SIZE = [
    f"--n-layer={LAYERS}",
    "--d-model=48",
    "--n-head=3",
    "--vocab-size=300",
    "--seq-len=32",
    "--batch-size=2",
]
SIZES = {
    "gpt2": SIZE,
    "bert": SIZE,
    "vit": [f"--n-layer={LAYERS}", "--d-model=48", "--n-head=3", "--image-size=96", "--batch-size=2"],
    "dit": [f"--n-layer={LAYERS}", "--d-model=48", "--n-head=3", "--image-size=96", "--batch-size=2"],
}


def profiled(cli: Any, tmp_path: Path, *options: str) -> tuple[Record, Path]:
    """The record of a profiled run, and where it lies."""
    done = cli("run", "--blocks=2", "--profile", f"--profile-steps={STEPS}", "--threads=1", *options)
    assert done.returncode == 0, done.stderr
    assert "incomplete" not in done.stderr
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    return read(path.read_bytes()), path


def share_outside(path: Path) -> float:
    """The share of the time outside any scope.

    Each kernel counts with the median of its steps: one in which its thread was not running would otherwise decide.
    """
    rows = work(open_trace(path).events)
    of_step = rows.groupby(["name", "leaf", "step"], observed=True)["busy_ns"].sum().unstack(fill_value=0)
    usual = of_step.median(axis=1).groupby("leaf").sum()
    return usual.get("", 0) / usual.sum()


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("problem", "mode"),
    [("gpt2", "inference"), ("gpt2", "forward_backward"), *((problem, "training") for problem in SIZES)],
)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_scope_of_a_model_runs_as_often_as_it_should(cli, tmp_path, problem, framework, mode):
    words = (f"--framework={framework}", f"--problem={problem}", f"--mode={mode}", *SIZES[problem])
    record, path = profiled(cli, tmp_path, *words)
    trace = record.trace
    assert trace is not None
    assert trace.complete, trace.missing
    assert (trace.steps, len(trace.step_ns)) == (STEPS, STEPS)
    assert (trace.unmatched_ops, trace.unmatched_backward, trace.unlaunched, trace.uneven) == (0, 0, 0, 0)
    assert trace.busy_ns + trace.idle_ns == trace.wall_ns
    found = {(each.scope, each.phase): each for each in record.scopes}
    names = {each.scope for each in record.scopes} - {""}
    assert {"attn_q_k", "attn_softmax", "attn_att_v", "mlp_fc"} < names
    scopes = problem_of(problem)(n_layer=LAYERS).scopes(mode)
    for name in names:
        count = STEPS * scopes[name]
        forward = found[name, "forward"]
        assert (forward.occurrences, forward.expected) == (count, count)
        if mode != "inference" and name != "optimizer":
            assert found[name, "backward"].occurrences == count
            assert found[name, "backward"].root_ns > 0
    # The shares of all scopes, with what lies outside any, are the busy time.
    assert sum(each.root_ns for each in record.scopes) == trace.busy_ns
    assert sum(each.root_ns for each in record.scopes if not each.scope) == trace.outside_ns
    assert share_outside(path) < 0.2
    assert all(sum(each.step_ns) == each.root_ns for each in record.scopes)
    phases = {each.phase for each in record.scopes} - {""}  # that of copies that XLA adds is unknown
    assert phases == ({"forward"} if mode == "inference" else {"forward", "backward"})
    # FLOPs of the matrix products are those of the formula.
    assert record.cost is not None
    rows = work(open_trace(path).events)
    assert rows["flops"].sum() / STEPS == pytest.approx(record.cost.flops, rel=1e-9)
    # The inclusive times of the outermost scopes, with what lies outside any, are the busy time.
    events = open_trace(path).events
    outermost = {text.partition("/")[0] for text in events["scope"]}
    within = inclusive(events)
    assert within.loc[within["scope"].isin(outermost), "inclusive_ns"].sum() == trace.busy_ns


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("problem", SIZES)
def test_recomputed_blocks_and_each_microbatch_are_counted(cli, tmp_path, problem, framework):
    sizes = [*SIZES[problem][:-1], "--batch-size=4", "--recompute", "--microbatches=2"]
    record, path = profiled(
        cli, tmp_path, f"--framework={framework}", f"--problem={problem}", "--mode=training", *sizes
    )
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    assert record.cost is not None
    found = {(each.scope, each.phase): each.occurrences for each in record.scopes if each.scope}
    size = parameters.convert(problem_of(problem), record.case.params)
    expected = {name: STEPS * count for name, count in size.scopes("training").items()}
    for name in {name for name, _ in found}:
        assert found[name, "forward"] == expected[name]
        assert name == "optimizer" or found[name, "backward"] == expected[name]
    for name in ("attn_qkv", "attn_q_k", "mlp_fc"):
        assert found[name, "remat"] == expected[name] == 2 * LAYERS * STEPS
    rows = work(open_trace(path).events)
    flops = rows.groupby("phase", observed=True)["flops"].sum() / STEPS
    tokens = size.batch_size * size.seq_len
    # PyTorch ends the recomputation of a block within its last product, which it has begun: it is in the trace.
    within = framework == "torch" and problem in ("gpt2", "vit")
    begun = LAYERS * 2 * tokens * (4 * 48) * 48 if within else 0
    assert flops["remat"] == record.cost.recomputed_flops + begun
    assert flops.sum() == record.cost.flops + record.cost.recomputed_flops + begun


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_scopes_of_a_prompt_and_of_each_token_are_counted(cli, tmp_path, framework):
    """In JAX they are two programs with the same paths; in the second, every product has a single row."""
    lengths = ("--phase=generate", "--prompt-len=16", "--new-tokens=4", "--seq-len=32", "--batch-size=1")
    words = (f"--framework={framework}", "--problem=gpt2", *SIZE[:-2], *lengths)
    record, path = profiled(cli, tmp_path, *words)
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    found = {each.scope: each for each in record.scopes if each.scope and each.phase == "forward"}
    for name in ("cache_write", "attn_qkv", "attn_q_k", "mlp_proj"):
        assert found[name].occurrences == found[name].expected == 4 * LAYERS * STEPS
    assert found["next_token"].occurrences == found["next_token"].expected == 4 * STEPS
    assert share_outside(path) < 0.2


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("framework", "impl", "scopes"),
    [
        *((framework, *each) for framework in ("jax", "torch") for each in (("einsum", 3), ("fused", 1))),
        *(("tensorflow", impl, 3) for impl in ("einsum", "matmul")),
    ],
)
def test_every_implementation_of_attention_is_told_apart(cli, tmp_path, framework, impl, scopes):
    sizes = ("--batch-size=2", "--heads=2", "--seq-len=64", "--head-dim=16", f"--impl={impl}")
    record, _ = profiled(cli, tmp_path, f"--framework={framework}", "--problem=attention", *sizes)
    assert [each.occurrences for each in record.scopes if each.scope] == [STEPS] * scopes


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    "options",
    [
        ("--problem=cg", "--nx=20", "--ny=20", "--nz=20", "--iterations=4"),
        ("--problem=cg", "--nx=20", "--ny=20", "--nz=20", "--iterations=4", "--format=csr"),
        ("--problem=fft", "--nx=16", "--ny=16", "--nz=16"),
        ("--problem=lu", "--n=200"),
        ("--problem=lu", "--n=200", "--factor=fp32", "--precision=fp64"),
        ("--problem=spmv", "--nx=20", "--ny=20", "--nz=20", "--format=ell"),
        ("--problem=stencil", "--nx=40", "--ny=40", "--nz=40"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_scope_of_a_scientific_kernel_runs_as_often_as_it_should(cli, tmp_path, framework, options):
    record, path = profiled(cli, tmp_path, f"--framework={framework}", *options)
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    assert {each.scope for each in record.scopes if each.occurrences != each.expected} <= {""}
    if "--problem=lu" not in options:  # the loop in which JAX derives the order of rows from pivots is in no scope
        assert share_outside(path) < 0.3


OTHERS = {
    "conv": ("--in-channels=16", "--out-channels=32", "--image-size=20", "--batch-size=4"),
    "mlp": ("--width=64", "--layers=3", "--batch-size=16"),
    "lstm": ("--hidden-size=32", "--input-size=16", "--seq-len=8", "--batch-size=4"),
    "resnet": ("--size=18", "--stages=2", "--stage-blocks=2", "--width=16", "--image-size=64"),
}
"""Options of other problems."""


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("problem", "framework"),
    [*((problem, framework) for problem in OTHERS for framework in ("jax", "torch")), ("mlp", "tensorflow")],
)
def test_each_scope_of_other_problems_runs_as_often_as_it_should(cli, tmp_path, problem, framework):
    asked = (f"--framework={framework}", f"--problem={problem}", "--mode=forward_backward", *OTHERS[problem])
    record, path = profiled(cli, tmp_path, *asked)
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    forward = {each.scope: each for each in record.scopes if each.phase == "forward" and each.scope}
    backward = {each.scope for each in record.scopes if each.phase == "backward"}
    assert all(each.occurrences == each.expected for each in forward.values())
    assert forward.keys() <= backward
    assert share_outside(path) < 0.3
    assert record.cost is not None
    rows = work(open_trace(path).events)
    if (problem, framework) != ("lstm", "torch"):  # the FLOPs of a fused LSTM are not in the trace
        # XLA computes the gradient of an image of stride 2 with zeros between the elements, and these count.
        near = 0.06 if (problem, framework) == ("resnet", "jax") else 1e-9
        assert rows["flops"].sum() / STEPS == pytest.approx(record.cost.flops, rel=near)


def test_scopes_of_jax_are_kept_beside_a_cache_of_compiled_programs(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    case = ("--framework=jax", "--problem=attention", "--seq-len=32", "--heads=2", "--threads=1")
    assert cli("run", "--blocks=2", "--results=filling", *case).returncode == 0
    assert list((tmp_path / "cache").iterdir())
    record, _ = profiled(cli, tmp_path, *case)
    assert record.trace.missing == []


def test_a_product_whose_path_tensorflow_loses_has_the_scope_and_the_phase_of_its_result(cli, tmp_path):
    """XLA puts the axes of a batch of products together, and what is left of the paths is on what follows."""
    sizes = ("--batch-size=2", "--heads=2", "--seq-len=64", "--head-dim=16", "--mode=forward_backward")
    record, path = profiled(cli, tmp_path, "--framework=tensorflow", "--problem=attention", *sizes)
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    assert record.trace.framework == "tensorflow"
    rows = work(open_trace(path).events)
    products = rows[rows["category"] == "gemm"].groupby(["leaf", "phase"], observed=True)["flops"].sum() / STEPS
    each = 2 * 2 * 2 * 64 * 64 * 16
    assert products.to_dict() == {
        (scope, phase): count * each for scope in ("attn_q_k", "attn_att_v") for phase, count in PASSES.items()
    }


PASSES = {"forward": 1, "backward": 2}
"""Products of a step for each of attention's."""


def test_separable_scopes_of_jax_are_pure_products(cli, tmp_path):
    record, path = profiled(cli, tmp_path, "--framework=jax", "--problem=gpt2", "--separable", *SIZE)
    assert record.trace is not None
    assert record.trace.separable
    assert "--xla_cpu_experimental_ynn_fusion_type=" in record.trace.variables["XLA_FLAGS"]
    assert "XLA_FLAGS" not in record.software.variables
    rows = work(open_trace(path).events)
    products = rows[rows["category"] == "gemm"]
    assert (products["purity"] == 1).all()
    assert (products["opcode"] == "dot").all()
    assert len(products) == STEPS * (6 * LAYERS + 1)


def test_numpy_has_no_profile_and_says_so(cli, tmp_path):
    done = cli("run", "--framework=numpy", "--problem=gemm", "--m=8", "--blocks=2", "--profile")
    assert done.returncode == 0
    assert "has no profile: numpy: it has no profiler" in done.stderr
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    assert read(path.read_bytes()).reasons["trace"] == "numpy: it has no profiler"
    asked = cli("profile", "kernels", str(path))
    assert (asked.returncode, asked.stderr.count("\n")) == (2, 1)
    assert "it has no profiler" in asked.stderr


QUERIES = {
    "op": "SELECT extract_arg(arg_set_id, 'args.op') AS key, COUNT(*) AS count, "
    "SUM(extract_arg(arg_set_id, 'args.self_ns')) AS self_ns, MIN(extract_arg(arg_set_id, 'args.self_ns')) AS min_ns, "
    "MAX(extract_arg(arg_set_id, 'args.self_ns')) AS max_ns FROM slice WHERE category = 'op' GROUP BY key",
    "category": "SELECT extract_arg(arg_set_id, 'args.category') AS key, COUNT(*) AS count, "
    "SUM(extract_arg(arg_set_id, 'args.busy_ns')) AS busy_ns FROM slice WHERE category = 'op' GROUP BY key",
    "phase": "SELECT COALESCE(extract_arg(arg_set_id, 'args.phase'), '') AS key, COUNT(*) AS count, "
    "SUM(extract_arg(arg_set_id, 'args.busy_ns')) AS busy_ns FROM slice WHERE category = 'op' GROUP BY key",
    "leaf": "SELECT COALESCE(extract_arg(arg_set_id, 'args.leaf'), '') AS key, COUNT(*) AS count, "
    "SUM(extract_arg(arg_set_id, 'args.busy_ns')) AS busy_ns FROM slice WHERE category = 'op' GROUP BY key",
}
"""Statistics by the columns of the event table, as Perfetto's engine takes them from the annotated trace."""
DURATIONS = "SELECT COUNT(*) AS count, SUM(dur) AS total FROM slice WHERE category = 'op'"
SCOPED = (
    "SELECT extract_arg(arg_set_id, 'args.name') AS scope, dur FROM slice "
    "WHERE scope LIKE '%attn_q_k%' AND category = 'op'"
)


def _over_events(query: str) -> str:
    """The same query over the event table."""
    columns = re.sub(r"extract_arg\(arg_set_id, 'args\.(\w+)'\)", r"\1", query)
    return columns.replace("slice", "events").replace("category = 'op'", "kind = 'op'")


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_statistics_are_those_of_perfetto_to_the_nanosecond(cli, tmp_path, framework):
    _, path = profiled(cli, tmp_path, f"--framework={framework}", "--problem=gpt2", "--mode=forward_backward", *SIZE)
    ingested = open_trace(path)
    rows = work(ingested.events)

    shown = cli("profile", "export", str(path))
    assert "ui.perfetto.dev" in shown.stderr
    with trace_processor.open_trace(Path(shown.stdout.strip())) as trace:
        assert trace.dropped() == {}
        found = {column: trace.query(query).to_dict("records") for column, query in QUERIES.items()}
        (durations,) = trace.query(DURATIONS).to_dict("records")
        scoped = trace.query(SCOPED)
    for column, query in QUERIES.items():
        ours = {row[column]: row for row in describe(rows, [column]).to_dict("records")}
        theirs = {row.pop("key"): row for row in found[column]}
        assert {key: {name: ours[key][name] for name in row} for key, row in theirs.items()} == theirs
        assert len(theirs) == len(ours)
        of_duckdb = json.loads(cli("profile", "sql", str(path), _over_events(query), "--json").stdout)
        assert {row.pop("key"): row for row in of_duckdb} == theirs
    assert durations == {"count": len(rows), "total": int(rows["dur_ns"].sum())}
    products = rows[(rows["leaf"] == "attn_q_k") & (rows["kind"] == "op")]
    assert sorted(scoped["dur"]) == sorted(products["dur_ns"])


def test_a_profile_lies_beside_its_record_and_can_be_asked(cli, tmp_path):
    record, path = profiled(cli, tmp_path, "--framework=torch", "--problem=gpt2", *SIZE)
    names = sorted(each.name.removeprefix(record.trial_id) for each in path.parent.glob(f"{record.trial_id}*"))
    assert [name for name in names if not name.endswith(".log")] == [".events.parquet", ".json", ".profile.json.gz"]
    again = ingest(path.with_name(record.trial_id + ".profile.json.gz"))
    assert again.trace.busy_ns == record.trace.busy_ns
    assert len(load_events(path)) == record.trace.rows
    (line,) = json.loads(cli("profile", "scopes", str(path), "--scope=attn_q_k", "--json").stdout)
    assert (line["ran"], line["expected"], line["phase"]) == (LAYERS * STEPS, LAYERS * STEPS, "forward")
    by_category = json.loads(cli("profile", "kernels", str(path), "--by=category", "--top=0", "--json").stdout)
    assert sum(each["busy_ns"] for each in by_category) == record.trace.busy_ns
    ops = json.loads(cli("profile", "ops", str(path), "--top=0", "--json").stdout)
    assert {"aten::addmm", "aten::bmm", "aten::gelu"} < {each["op"] for each in ops}
    shown = cli("show", str(path)).stdout
    assert f"{STEPS} steps of" in shown
    assert "most time in" in shown
    text = cli("profile", "kernels", str(path), "--top=3").stdout
    assert "more, " in text
    assert "flop/s" in text


PYTORCH = """
import json, sys
import torch
from torch.profiler import ProfilerActivity, profile

layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8))
layers(torch.randn(16, 64)).sum().backward()
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
    for _ in range(5):
        layers(torch.randn(16, 64)).sum().backward()
profiler.export_chrome_trace(sys.argv[1])
print(json.dumps({e.key: [e.count, e.self_cpu_time_total, e.cpu_time_total] for e in profiler.key_averages()}))
"""


def test_counts_and_times_are_those_of_pytorch_itself(tmp_path):
    """`key_averages` sums up the same events by another program, in µs; it leaves out an op within one of its name."""
    pytest.importorskip("torch")
    path = tmp_path / "trace.json"
    done = subprocess.run([sys.executable, "-c", PYTORCH, path], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    rows = work(ingest(path).events)
    parents = rows["name"].astype(object).reindex(rows["parent_id"]).to_numpy()
    table = describe(rows, ["name"]).assign(
        nested=lambda table: table["name"].map(Counter(parents[parents == rows["name"]]))
    )
    ours = {row["name"]: row for row in table.to_dict("records")}
    assert ours.keys() == theirs.keys()
    assert len(ours) > 20
    for name, (count, own_us, total_us) in theirs.items():
        assert ours[name]["count"] - ours[name]["nested"] == count
        assert math.isclose(ours[name]["self_ns"], own_us * 1000, abs_tol=1)
        assert math.isclose(ours[name]["total_ns"], total_us * 1000, abs_tol=1)
