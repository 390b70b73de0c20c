from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from support.models import lowered, problem_of, torch_workload

from benchmarker import MODES, UserError
from benchmarker.hooks import parameters
from benchmarker.records.reading import read
from benchmarker_problems.moe import reference

problem = problem_of("moe")
TINY = {
    "n_layer": 2,
    "d_model": 8,
    "n_head": 4,
    "n_kv_head": 2,
    "d_ff": 5,
    "n_expert": 6,
    "top_k": 2,
    "vocab_size": 11,
    "seq_len": 3,
    "batch_size": 2,
}
CHOSEN_NK = np.array([[0, 2], [2, 0], [1, 2], [2, 1], [2, 0], [0, 1], [2, 1], [2, 0]])
"""Two sequences of four tokens that choose two of three experts, and which choices find one of two slots."""
KEPT_NK = np.array([[1, 1], [1, 1], [1, 0], [0, 1], [1, 1], [1, 1], [1, 1], [0, 0]], bool)
OF_CHOSEN = problem(
    d_model=8, n_head=2, n_kv_head=2, n_expert=3, seq_len=4, batch_size=2, dispatch="capacity", capacity_factor=0.5
)


def test_cost_by_hand():
    given = problem(**TINY, dispatch="grouped")
    tokens = 6
    block = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 8 * 6  # q, k and v, output, router
    expert = 3 * 8 * 5
    scores = 2 * 2 * 2 * 4 * 3 * 3 * 2  # two products, two sequences, four heads, 3·3 scores of width 2
    forward = given.cost("inference", "fp32")
    assert forward.flops == 2 * (2 * tokens * (block + 2 * expert) + scores) + 2 * tokens * 8 * 11
    assert given.cost("training", "fp32").flops == 3 * forward.flops
    assert given.parameter_count() == 2 * 11 * 8 + 2 * (block + 6 * expert + 2 * 8) + 8
    # Rows of the embedding that no token selects are not read.
    assert forward.bytes == 4 * (given.parameter_count() - (11 - 6) * 8) + 4 * tokens + 4 * tokens * 11
    # One token reaches two of the six experts.
    one = problem(**TINY | {"seq_len": 1, "batch_size": 1}, dispatch="grouped")
    unread = 10 * 8 + 2 * 4 * expert
    assert one.cost("inference", "fp32").bytes == 4 * (one.parameter_count() - unread) + 4 + 4 * 11


@pytest.mark.parametrize(
    ("factor", "seq_len", "capacity", "rows"), [(1.0, 3, 1, 12), (1.25, 3, 2, 12), (0.5, 6, 1, 12), (9, 3, 3, 12)]
)
def test_capacity_counts_choices_that_have_slots(factor, seq_len, capacity, rows):
    """Six experts and two choices: a third of the tokens of a sequence, times the factor, rounded up."""
    given = problem(**TINY | {"seq_len": seq_len}, dispatch="capacity", capacity_factor=factor)
    assert given.capacity == capacity
    parts = given.parts("inference", "fp32")
    assert parts["moe_fc"].flops == 2 * (2 * rows * 8 * 2 * 5)  # two layers; empty slots do not count
    slots = 6 * 2 * capacity
    assert parts["moe_fc"].bytes == 2 * 4 * (slots * 8 + 6 * 8 * 10 + slots * 10)
    assert parts["moe_router"].flops == 2 * (2 * 2 * seq_len * 8 * 6)


def test_an_expert_takes_the_first_tokens_of_each_sequence():
    assert OF_CHOSEN.capacity == 2
    assert (reference.within_capacity(CHOSEN_NK, OF_CHOSEN) == KEPT_NK).all()
    assert reference.within_capacity(CHOSEN_NK, problem(dispatch="grouped")).all()


def test_a_token_that_is_dropped_passes_by_the_residual():
    weights = {"moe_router.kernel": np.eye(8)[:, :3]}
    weights |= {name: np.ones(shape) for name, shape in [("moe_fc.kernel", (3, 8, 4)), ("moe_proj.kernel", (3, 2, 8))]}
    scores_NE = np.zeros((8, 3))
    np.put_along_axis(scores_NE, np.tile([[0, 1]], (8, 1)), [[2.0, 1.0]], axis=1)
    y_BTC, _ = reference.mixture(np.pad(scores_NE, [(0, 0), (0, 5)]).reshape(2, 4, 8), weights, OF_CHOSEN)
    # All tokens choose experts 0 and 1, with two slots for each sequence; gate and up are 3, and gates add up to 1.
    expected = 2 * 3 * 3 / (1 + np.exp(-3))
    assert np.allclose(y_BTC[:, :2], expected)
    assert (y_BTC[:, 2:] == 0).all()


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_every_choice_has_its_slot_and_every_slot_its_choice(framework):
    lib = pytest.importorskip(framework)
    made = import_module(f"benchmarker_problems.moe.{framework}")
    chosen_NK = lib.asarray(CHOSEN_NK) if framework == "torch" else lib.numpy.asarray(CHOSEN_NK)
    choice_S, slot_NK, _ = (np.asarray(each) if each is not None else None for each in made.slots(chosen_NK, OF_CHOSEN))
    assert choice_S.shape == (3 * 2 * 2,)
    assert ((slot_NK < 12) == KEPT_NK).all()
    assert (choice_S[slot_NK[KEPT_NK]] == np.arange(16).reshape(8, 2)[KEPT_NK]).all()
    assert (slot_NK // 4 == CHOSEN_NK)[KEPT_NK].all()
    assert sorted(choice_S) == sorted([*np.flatnonzero(KEPT_NK), 16][: KEPT_NK.sum()] + [16] * (12 - KEPT_NK.sum()))

    choice_R, row_NK, groups_E = map(np.asarray, made.groups(chosen_NK, OF_CHOSEN))
    assert (choice_R[row_NK] == np.arange(16).reshape(8, 2)).all()
    assert (CHOSEN_NK.ravel()[choice_R] == np.sort(CHOSEN_NK.ravel())).all()
    sizes_E = np.bincount(CHOSEN_NK.ravel())
    assert (groups_E == (sizes_E if framework == "jax" else sizes_E.cumsum())).all()


@pytest.mark.parametrize(("width", "dtype"), [(16, "float32"), (16, "float64"), (3, "float32")])
def test_grouped_products_of_pytorch_take_empty_experts_and_any_width(width, dtype):
    torch = pytest.importorskip("torch")
    from benchmarker_problems.moe.torch import grouped_product

    rng = np.random.default_rng(0)
    rows_RI = torch.asarray(rng.standard_normal((7, 8)), dtype=getattr(torch, dtype))
    weight_EIO = torch.asarray(rng.standard_normal((4, width, 8)), dtype=rows_RI.dtype).transpose(1, 2)
    found = grouped_product(rows_RI, weight_EIO, torch.tensor([0, 3, 3, 7], dtype=torch.int32))
    expected = torch.cat([rows_RI[:3] @ weight_EIO[1], rows_RI[3:] @ weight_EIO[3]])
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_grouped_flops_in_pytorch(mode):
    """PyTorch's counter does not know its grouped product."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    size = problem(dispatch="grouped").small()
    workload = torch_workload("moe", size, mode)
    product = {torch.ops.aten._grouped_mm: lambda a, b, *_, **__: 2 * a[0] * a[1] * b[-1]}
    with FlopCounterMode(display=False, custom_mapping=product) as counter:
        workload.step()
    assert counter.get_total_flops() == size.cost(mode, "fp32").flops


def test_empty_slots_are_computed_and_do_not_count():
    pytest.importorskip("jax")
    size = problem(capacity_factor=2.0).small()
    padding = size.n_layer * 2 * (3 * 8 * 16 - 3 * 32 * 2) * 3 * 64 * 160
    flops = lowered("moe", size, "inference").cost_analysis()["flops"]
    assert flops == pytest.approx(size.cost("inference", "fp32").flops + padding, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dispatch": "grouped"},
        {"dispatch": "capacity", "capacity_factor": 0.6},
        {"dispatch": "grouped", "n_expert": 5, "top_k": 3},
        {"dispatch": "capacity", "n_expert": 2},
    ],
)
def test_gradients_of_the_reference_are_those_of_jax(x64, options):
    small = problem(**options).small()
    data = small.data("fp64", np.random.default_rng(0), 1)
    (expected,) = small.reference(data, "forward_backward")
    _, loss_of = import_module("benchmarker_problems.moe.jax").functions(small, "float64", "xla")
    loss, gradients = x64.jit(x64.value_and_grad(loss_of))(dict(data.weights), **data.batches[0])
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-14)
    for weight, gradient in gradients.items():
        exact = expected[f"d_{weight}"]
        assert np.linalg.norm(gradient - exact) < 1e-13 * np.linalg.norm(exact), weight


@pytest.mark.parametrize("seed", range(5))
def test_choices_are_clear_and_the_load_is_about_equal(monkeypatch, seed):
    """Far clearer than the rounding of 16-bit types: scores of about 2 are off by 0.02 in bf16."""
    seen = []

    def watched(chosen_NK, params):
        seen.append(chosen_NK)
        return np.ones(chosen_NK.shape, bool)

    def linear(x_I, weights):
        result = layers_linear(x_I, weights)
        if weights["kernel"].shape[-1] == 8:
            ranked = np.sort(result[0], axis=-1)
            assert (ranked[:, -2] - ranked[:, -3]).min() > 0.5
        return result

    layers_linear = reference.linear
    monkeypatch.setattr(reference, "linear", linear)
    monkeypatch.setattr(reference, "within_capacity", watched)
    small = problem().small()
    data = small.data("fp32", np.random.default_rng(seed), 1)
    list(small.reference(data, "inference"))
    assert len(seen) == 2
    for chosen_NK in seen:
        load_E = np.bincount(chosen_NK.ravel(), minlength=8) / (chosen_NK.size / 8)
        assert load_E.min() > 0.5
        assert load_E.max() < 1.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 100, "n_head": 12, "n_kv_head": 12}, "d_model=100 is not an even multiple of n_head=12"),
        ({"n_head": 8, "n_kv_head": 5}, "n_head=8 is not a multiple of n_kv_head=5"),
        ({"n_expert": 300}, "n_expert=300 exceeds d_model=256"),
        ({"top_k": 9}, "top_k=9 exceeds n_expert=8"),
        ({"top_k": 1}, "--top-k=1"),
        ({"dispatch": "grouped", "capacity_factor": 2.0}, "capacity_factor=2 needs dispatch=capacity"),
        ({"batch_size": 3, "microbatches": 2}, "batch_size=3 is not a multiple of microbatches=2"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_a_size():
    published = problem(size="mixtral-8x7b", dispatch="grouped")
    assert published.title("training") == "mixtral-8x7b training, B=1 T=128 grouped"
    own = problem(n_layer=3, n_expert=16, vocab_size=99, impl="fused")
    assert (
        own.title("forward_backward")
        == "MoE L=3 d=256 H=8/2 d_ff=896 E=2/16 V=99 fwd+bwd, B=1 T=128 capacity 1.25 fused"
    )


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["grouped", "capacity"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_scope_runs_as_often_as_it_should(cli, tmp_path, framework, dispatch):
    done = cli(
        "run",
        "--problem=moe",
        f"--framework={framework}",
        f"--dispatch={dispatch}",
        "--mode=training",
        "--n-layer=2",
        "--d-model=64",
        "--d-ff=96",
        "--vocab-size=300",
        "--seq-len=32",
        "--batch-size=2",
        "--blocks=2",
        "--profile",
        "--profile-steps=2",
        "--threads=1",
    )
    assert done.returncode == 0, done.stderr
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    record = read(path.read_bytes())
    assert record.trace is not None
    assert record.trace.complete, record.trace.missing
    found = {(each.scope, each.phase): each.occurrences for each in record.scopes if each.scope}
    once = {"embed", "norm_f", "lm_head", "loss", "optimizer"}
    assert {"moe_router", "moe_dispatch", "moe_fc", "moe_swiglu", "moe_proj", "moe_combine"} < {
        name for name, _ in found
    }
    for (name, phase), occurrences in found.items():
        assert occurrences == (2 if name in once else 4), (name, phase)
