"""DLRM: its cost by hand, its data, and its FLOPs, scopes and gradients as the frameworks themselves count them."""

import json
import re
from functools import partial

import numpy as np
import pytest
from support.models import counted_flops, problem_of, profiled_names, torch_workload

from benchmarker import MODES, UserError
from benchmarker.hooks import parameters
from benchmarker_problems.dlrm import pair_positions, probabilities

problem = problem_of("dlrm")
TINY = {
    "tables": 2,
    "rows": 5,
    "pooling": 4,
    "embedding_dim": 3,
    "dense_features": 7,
    "bottom_mlp": "6",
    "top_mlp": "11-8",
    "skew": 0.0,
    "batch_size": 10,
}
EVERY = set(problem().scopes("training"))


def test_cost_by_hand():
    given = problem(**TINY)
    first = 2 * 10 * 7 * 6
    pairs = 2 * 10 * 3 * 3 * 3  # two bags and the bottom MLP's result, of width 3, with one another
    forward = given.cost("inference", "fp32")
    assert forward.flops == first + 2 * 10 * 6 * 3 + pairs + 2 * 10 * (6 * 11 + 11 * 8 + 8 * 1)
    assert given.cost("training", "fp32").flops == 3 * forward.flops - first
    mlps = (7 * 6 + 6) + (6 * 3 + 3) + (6 * 11 + 11) + (11 * 8 + 8) + (8 + 1)
    assert given.parameter_count() == mlps + 2 * 5 * 3
    rows = 2 * 5 * 3  # 40 lookups find all five rows of a table
    inputs, bags = 4 * 10 * 7 + 4 * 10 * 2 * 4, 10 * 2 * 3
    assert given.lookups == 80
    assert forward.bytes == 4 * (mlps + rows) + inputs + 4 * 10
    assert given.cost("forward_backward", "fp32").bytes == 4 * (2 * mlps + rows + bags + 10) + inputs
    assert given.cost("training", "fp32").bytes == 4 * (3 * mlps + 2 * rows + bags + 10) + inputs
    parts = given.parts("training", "fp32")
    assert parts["interaction"].flops == 3 * pairs
    assert parts["embed"].bytes == 4 * (rows + bags) + 4 * 80
    assert parts["embed_update"].bytes == 4 * (2 * rows + bags) + 4 * 80
    assert parts["optimizer"].bytes == 3 * 4 * mlps


def test_sizes_of_the_authors_benchmark_scripts():
    """Sizes of layers as `python dlrm_s_pytorch.py` derives them from the options of the scripts."""
    synthetic, mlperf = (problem(size=size) for size in ("synthetic", "mlperf"))
    assert (synthetic.bottom_widths, synthetic.top_widths) == ((512, 512, 64), (100, 1024, 1024, 1024, 1))
    assert (mlperf.bottom_widths, mlperf.top_widths) == ((13, 512, 256, 128), (479, 1024, 1024, 512, 256, 1))
    assert synthetic.parameter_count() == 8 * 10**6 * 64 + 512 * 513 + 513 * 64 + 101 * 1024 + 2 * 1025 * 1024 + 1025


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_rows_are_looked_up_as_the_skew_says(skew):
    given = problem(**{**TINY, "rows": 50, "batch_size": 500, "skew": skew})
    (batch,) = given.data("fp32", np.random.default_rng(1), 1).batches
    assert (batch["indices"].shape, batch["indices"].dtype) == ((500, 2, 4), np.int32)
    hottest = []
    for table in range(2):
        counts = np.bincount(batch["indices"][:, table].ravel(), minlength=100)
        assert counts.sum() == counts[50 * table : 50 * (table + 1)].sum() == 2000
        expected = 2000 * probabilities(50, skew)
        found = np.sort(counts)[::-1][:50]
        assert np.abs(found - expected).max() < 4 * np.sqrt(expected.max())
        hottest.append(counts.argmax() % 50)
    assert skew == 0 or hottest[0] != hottest[1]  # a row's number says nothing of how frequent it is
    assert probabilities(50, skew)[0] / probabilities(50, skew)[9] == pytest.approx(10**skew)


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_distinct_rows_are_as_many_as_found(skew):
    given = problem(**{**TINY, "rows": 1000, "batch_size": 100, "skew": skew})
    batches = given.data("fp32", np.random.default_rng(1), 8).batches
    found = np.mean([np.unique(batch["indices"]).size for batch in batches])
    assert found == pytest.approx(given.distinct_rows, rel=0.03)


def test_clicks_follow_from_rows_and_dense_features():
    given = problem(**{**TINY, "batch_size": 400})
    data, again = (given.data("fp32", np.random.default_rng(3), 2) for _ in range(2))
    first, second = data.batches
    for name, value in first.items():
        np.testing.assert_array_equal(value, again.batches[0][name])
        assert not np.array_equal(value, second[name])
    clicked = first["targets"] == 1
    assert 0.2 < clicked.mean() < 0.8
    pattern = first["dense"][clicked].mean(axis=0)
    assert ((second["dense"] @ pattern > 0) == (second["targets"] == 1)).mean() > 0.95
    counts = [np.bincount(row.ravel(), minlength=10) for row in np.concatenate([first["indices"], second["indices"]])]
    scores, *_ = np.linalg.lstsq(np.array(counts[:400], float), 2.0 * clicked - 1, rcond=None)
    assert ((np.array(counts[400:]) @ scores > 0) == (second["targets"] == 1)).mean() > 0.85


def test_pairs_are_those_below_the_diagonal():
    products = np.arange(16).reshape(4, 4)
    assert list(products.ravel()[pair_positions(4)]) == [4, 8, 9, 12, 13, 14]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "--size=huge"),
        ({"bottom_mlp": "512,256"}, "bottom_mlp=512,256 is not a list of widths such as 512-256"),
        ({"top_mlp": "512-0"}, "top_mlp=512-0 is not a list of widths such as 512-256"),
        ({"tables": 3000, "rows": 1_000_000}, "tables·rows=3000000000 exceeds 32-bit indices; give fewer rows"),
        ({"skew": -1}, "--skew=-1"),
        ({"pooling": 0}, "--pooling=0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_the_size():
    assert problem().title("training") == "DLRM small training, B=128"
    changed = problem(size="mlperf", rows=500, top_mlp="64", skew=0.5, batch_size=2048)
    assert changed.title("forward_backward") == "DLRM mlperf rows=500 top_mlp=64 skew=0.5 fwd+bwd, B=2048"


@pytest.mark.parametrize("mode", MODES)
def test_flops_and_scopes_in_pytorch(mode):
    pytest.importorskip("torch")

    size = problem(**TINY)
    workload = torch_workload("dlrm", size, mode)
    assert counted_flops(workload) == size.cost(mode, "fp32").flops
    assert profiled_names(workload).keys() & EVERY == set(size.scopes(mode))


@pytest.mark.parametrize("mode", MODES)
def test_flops_and_scopes_in_xla(mode):
    jax = pytest.importorskip("jax")
    from benchmarker_problems.dlrm.jax import functions, gradients_step, training

    # So wide that elementwise work is less than 1% of the FLOPs.
    size = problem(
        tables=2, rows=50, pooling=1, embedding_dim=1024, bottom_mlp="2048", top_mlp="2048", dense_features=2048
    )
    b = size.batch_size
    weights = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in size.weight_shapes().items()}
    dense, indices = jax.ShapeDtypeStruct((b, 2048), "float32"), jax.ShapeDtypeStruct((b, 2, 1), "int32")
    logits_of, loss_of = functions(size, "float32")
    batch = {"dense": dense, "indices": indices, "targets": jax.ShapeDtypeStruct((b,), "float32")}
    lowered = {
        "inference": lambda: jax.jit(logits_of).lower(weights, dense, indices),
        "forward_backward": lambda: jax.jit(partial(gradients_step, loss_of, 1.0, 1.0)).lower(weights, **batch),
        "training": lambda: jax.jit(partial(training, loss_of, 1.0)).lower(weights, **batch),
    }[mode]()
    assert lowered.cost_analysis()["flops"] == pytest.approx(size.cost(mode, "fp32").flops, rel=0.01)
    found = set(re.findall(r"\w+", lowered.as_text(debug_info=True))) & EVERY
    assert found == set(size.scopes(mode))


@pytest.mark.slow
def test_gradients_of_the_reference_are_those_of_jax(x64):
    """Those of the tables too, from the gradients of the bags, and SGD with them is what training does."""
    from benchmarker_problems.dlrm.jax import functions, training, with_bags

    size = problem(**TINY)
    data = size.data("fp64", np.random.default_rng(0), 1)
    (expected,) = size.reference(data, "forward_backward")
    _, loss_of = functions(size, "float64")
    batch = dict(data.batches[0])

    def loss_of_tables(weights):
        return loss_of(with_bags(weights, batch["indices"]), batch["dense"], batch["targets"])

    weights = {name: x64.numpy.asarray(weight) for name, weight in data.weights.items()}
    loss, gradients = x64.jit(x64.value_and_grad(loss_of_tables))(weights)
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-14)
    d_tables = np.zeros_like(data.weights["embeddings"])
    np.add.at(d_tables, batch["indices"], expected.pop("d_bags")[:, :, None])
    exact = {**expected, "d_embeddings": d_tables}
    assert {f"d_{name}" for name in gradients} | {"loss"} == set(exact)
    updated, _ = x64.jit(partial(training, loss_of, 1.0))(weights, **batch)
    for name, gradient in gradients.items():
        assert np.linalg.norm(gradient - exact[f"d_{name}"]) < 1e-13 * np.linalg.norm(exact[f"d_{name}"]), name
        np.testing.assert_allclose(updated[name], weights[name] - 0.1 * gradient, rtol=1e-12, atol=1e-15)


def test_pytorch_updates_the_rows_looked_up_and_no_others():
    """The losses after the first depend on all updates, those of rows that occur twice in a bag too."""
    pytest.importorskip("torch")
    size = problem(**{**TINY, "rows": 3})
    losses = [float(loss["loss"]) for loss in size.reference(_again(size), "training")]
    workload = torch_workload("dlrm", size, "training", "fp64")
    found = [float(workload.outputs(workload.step())["loss"]) for _ in losses]
    np.testing.assert_allclose(found, losses, rtol=1e-13)
    assert losses[-1] < losses[0]


def _again(size):
    """The one batch of `torch_workload`, five times."""
    from dataclasses import replace

    data = size.data("fp64", np.random.default_rng(0), 1)
    return replace(data, batches=data.batches * 5)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_scope_runs_once_in_a_step(cli, tmp_path, framework):
    steps = 3
    options = [f"--profile-steps={steps}", "--mode=training", "--rows=1000", "--threads=1", "--blocks=2"]
    done = cli("run", f"--framework={framework}", "--problem=dlrm", "--profile", *options)
    assert done.returncode == 0, done.stderr
    assert "incomplete" not in done.stderr
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    found = json.loads(cli("profile", "scopes", str(path), "--json").stdout)
    rows = [row for row in found if row["scope"] != "(outside any)"]
    forward = {row["scope"]: (row["ran"], row["expected"]) for row in rows if row["phase"] == "forward"}
    assert forward == dict.fromkeys(EVERY, (steps, steps))
    backward = {row["scope"] for row in rows if row["phase"] == "backward"}
    assert backward == {"bottom_mlp", "interaction", "top_mlp", "loss"}
