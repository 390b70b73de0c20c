"""Layers of models: gradients against finite differences, work by hand, and the models that are made of them."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarker import Work
from benchmarker_problems.bert import Masked
from benchmarker_problems.dit import reference as dit
from benchmarker_problems.layers import layer as layers
from benchmarker_problems.layers.model import Model, Stage, transformer_block
from benchmarker_problems.layers.reference import gelu, gelu_tanh, relu, silu, tanh
from benchmarker_problems.layers.work import RowWork
from benchmarker_problems.moe import Experts, Moe
from benchmarker_problems.resnet import reference as resnet
from benchmarker_problems.steps import is_statistic
from benchmarker_problems.vit import ClassToken, OfClassToken

B, T, H, K, D, C, F, V = 2, 5, 4, 2, 6, 24, 10, 7
"""Batch, sequence, heads, those of keys and values, their width, widths of the model and of the MLP, vocabulary."""
ATTENTION = {impl: layers.Attention(impl, H, K, D, T, T, causal=True) for impl in ("einsum", "matmul")}
OF_GPT2 = {
    "d_model": C,
    "attention": (layers.Attention("einsum", H, H, D, T, T),),
    "d_ff": F,
    "gelu": gelu,
    "eps": 1e-5,
}
MIXTURE = Moe(n_layer=1, d_model=C, n_head=4, n_kv_head=2, d_ff=3, vocab_size=V, seq_len=T, n_expert=4, top_k=2)
BRANCH = (layers.Linear("mlp_fc", C, F), layers.Pointwise("gelu", gelu_tanh, F, F), layers.Linear("mlp_proj", F, C))
TOKENS = np.array([[0, 6, 2, 6, 1], [3, 2, 2, 0, 6]])
IMAGES = {"condition": (B, C)}

LAYERS = {
    "linear": (layers.Linear("x", C, F), (B, T, C), {}),
    "linear without bias": (layers.Linear("x", C, F, bias=False), (B, T, C), {}),
    "tied head": (layers.TiedHead("head", C, V), (B, T, C), {"wte": (V, C)}),
    "tied head with bias": (layers.TiedHead("head", C, V, bias="b"), (B, T, C), {"wte": (V, C)}),
    "LayerNorm": (layers.Norm("x", C, 1e-5), (B, T, C), {}),
    "RMSNorm": (layers.Norm("x", C, 1e-5, bias=False), (B, T, C), {}),
    "exact GELU": (layers.Pointwise("x", gelu, C, C), (B, T, C), {}),
    "approximate GELU": (layers.Pointwise("x", gelu_tanh, C, C), (B, T, C), {}),
    "SiLU": (layers.Pointwise("x", silu, C, C), (B, T, C), {}),
    "loss": (layers.Moved("x", C), (B, T, C), {}),
    "rope": (layers.Rope(H, K, D, 100.0), (B, T, (H + 2 * K) * D), {}),
    "grouped attention by einsum": (ATTENTION["einsum"], (B, T, (H + 2 * K) * D), {}),
    "grouped attention by products": (ATTENTION["matmul"], (B, T, (H + 2 * K) * D), {}),
    "attention to all": (layers.Attention("matmul", H, H, D, T, T), (B, T, 3 * H * D), {}),
    "block with norms before": (layers.Residual(layers.Norm("n", C, 1e-5), BRANCH), (B, T, C), {}),
    "block with norms after": (layers.Residual(layers.Norm("n", C, 1e-5), BRANCH, after=True), (B, T, C), {}),
    "experts with all tokens": (Experts(MIXTURE), (B, T, C), {}),
    "masked rows": (Masked(C), (B, T, C), {}),
    "class token": (ClassToken(T, C), (B, T - 1, C), {}),
    "of the class token": (OfClassToken(), (B, T, C), {}),
    "positions of patches": (dit.Positions(2, C), (B, 4, C), {}),
    "label embedding": (dit.LabelEmbedding(V, C), (B, C), {}),
    "block with a modulation": (dit.Adapted("m", C, T, {"ln_1": BRANCH}), (B, T, C), IMAGES),
    "norm with a modulation": (dit.Adapted("m", C, T, {"ln_f": ()}), (B, T, C), IMAGES),
    "image of patches": (dit.Joined(2, 3), (B, 4, 9 * 8), {}),
    "ReLU": (layers.Pointwise(None, relu), (B, T, C), {}),
    "tanh": (layers.Pointwise(None, tanh), (B, T, C), {}),
    "maximum": (resnet.MaxPool("x", 5, 3), (B, 5, 5, 3), {}),
    "mean": (resnet.MeanPool("x", 5, 3), (B, 5, 5, 3), {}),
}
BRANCH_OF_CONVS = (
    resnet.Conv("b.", "conv1", "norm1", 3, 2, 3, 4, in_size=5),
    resnet.Conv("b.", "conv2", "norm2", 1, 1, 4, 3, in_size=3, residual=True),
)
CONVOLUTIONS = {
    "convolution": BRANCH_OF_CONVS[0],
    "block": resnet.Block("b", (replace(BRANCH_OF_CONVS[0], stride=1), replace(BRANCH_OF_CONVS[1], in_size=5)), None),
    "block with a shortcut": resnet.Block("b", BRANCH_OF_CONVS, resnet.Conv("b.", "conv", "norm", 1, 2, 3, 3, 5)),
}
BATCH = {"masked": np.array([1, 3, 8]), "labels": np.array([6, 0])}


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def slope(function, arrays, directions):
    """The derivative of a function of arrays by name along their directions, by central differences."""
    step = 1e-6
    ahead, behind = (
        function({name: array + sign * step * directions[name] for name, array in arrays.items()}) for sign in (1, -1)
    )
    return (ahead - behind) / (2 * step)


def check_gradients(layer, arrays, constant):
    """Compare the gradient of each array, of which `x` is the input, with central differences."""
    y, pullback = layer.forward(arrays["x"], arrays | constant)
    d_y = np.random.default_rng(1).standard_normal(y.shape)
    d_x, gradients = pullback(d_y)
    assert {"x", *gradients} == arrays.keys()
    found = {"x": d_x, **gradients}
    assert {each: array.shape for each, array in found.items()} == {each: arrays[each].shape for each in arrays}
    for each in arrays:
        directions = {other: np.zeros_like(array) for other, array in arrays.items()}
        directions[each] = drawn({"d": arrays[each].shape}, seed=2)["d"]

        def of(moved):
            return (layer.forward(moved["x"], moved | constant)[0] * d_y).sum()

        expected = slope(of, arrays, directions)
        assert (found[each] * directions[each]).sum() == pytest.approx(expected, rel=1e-6, abs=1e-6), each


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_finite_differences(name):
    layer, shape, others = LAYERS[name]
    check_gradients(layer, drawn({"x": shape, **layer.shapes(), **others}), BATCH)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions_with_the_statistics_of_the_batch_or_running_ones(name, running):
    layer = CONVOLUTIONS[name]
    arrays = drawn({"x": (B, 5, 5, 3), **layer.shapes()})
    statistics = {each: 1 + np.square(arrays.pop(each)) for each in layer.shapes() if is_statistic(each)}
    check_gradients(layer, arrays, statistics if running else {})


@pytest.mark.parametrize("options", [{}, {"seq_len": T, "positions": 8, "first_position": 2, "types": 2}])
def test_gradients_of_an_embedding_are_those_of_finite_differences(options):
    layer = layers.Embedding(V, C, **options)
    arrays = drawn(layer.shapes())
    x_BTC, pullback = layer.forward(TOKENS, arrays)
    d_x_BTC = np.random.default_rng(1).standard_normal(x_BTC.shape)
    _, gradients = pullback(d_x_BTC)
    assert gradients.keys() == arrays.keys()
    directions = drawn(layer.shapes(), seed=2)
    expected = slope(lambda moved: (layer.forward(TOKENS, moved)[0] * d_x_BTC).sum(), arrays, directions)
    assert sum((gradients[name] * directions[name]).sum() for name in arrays) == pytest.approx(expected, rel=1e-7)


def test_both_implementations_of_attention_agree_and_repeat_keys_and_values_by_group():
    qkv_BTE = drawn({"x": (B, T, (H + 2 * K) * D)})["x"]
    by_einsum, by_products = (ATTENTION[impl].forward(qkv_BTE, {})[0] for impl in ("einsum", "matmul"))
    assert np.allclose(by_einsum, by_products, rtol=1e-13, atol=1e-13)
    q_BTE, k_BTE, v_BTE = np.split(qkv_BTE, [H * D, (H + K) * D], axis=-1)
    for head in range(H):
        of_head, of_group = np.s_[..., head * D : (head + 1) * D], np.s_[..., head // 2 * D : (head // 2 + 1) * D]
        scores_BTt = q_BTE[of_head] @ k_BTE[of_group].swapaxes(1, 2) / D**0.5
        weights_BTt = np.exp(scores_BTt) * np.tri(T)
        expected = weights_BTt / weights_BTt.sum(axis=-1, keepdims=True) @ v_BTE[of_group]
        assert np.allclose(by_einsum[of_head], expected, rtol=1e-12, atol=1e-12)


def test_work_of_layers_by_hand():
    at = RowWork(B * T, "mixed_bf16", backward=False, weight_type="int8")
    linear = layers.Linear("x", C, F, residual=True).parts(at)
    # An int8 kernel has a scale of 4 bytes for each output; the residual is as wide as the outputs.
    kernel_bytes = C * F + 4 * F
    assert linear == {"x": Work(2 * 10 * C * F, kernel_bytes + 2 * 10 * (C + 2 * F), kernel_bytes)}
    assert layers.TiedHead("x", C, V).parts(at)["x"].weight_bytes == 4 * C * V
    assert layers.Embedding(V, C, T, 8, types=2).parts(at)["embed"].weight_bytes == 4 * (10 + T + 1) * C
    cache = layers.Moved("cache_write", 6, 6, 6).parts(at)["cache_write"]
    assert (cache.bytes, cache.cache_bytes) == (2 * 10 * 12, 2 * 10 * 6)
    decode = layers.Attention("fused", H, K, D, tokens=1, keys=8.5, cached=True).parts(
        RowWork(B, "bf16", backward=False)
    )
    keys_and_values = 2 * 2 * 2 * 17 * K * D // 2
    assert decode == {
        "attn_fused": Work(2 * 2 * B * H * 17 * D // 2, 2 * 2 * B * H * D + keys_and_values, 0, keys_and_values)
    }


def model(blocks, **options):
    embedding, head = layers.Embedding(V, C), layers.TiedHead("head", C, V)
    block = transformer_block(**OF_GPT2)
    stages = (
        Stage(B * T, (embedding,)),
        Stage(B * T, block, blocks, **options),
        Stage(B * T, (head,)),
    )
    return Model(stages, loss=Stage(B * T, (layers.Moved("loss", V),)))


def test_a_model_names_the_weights_of_blocks_and_counts_them():
    shapes = model(2).shapes()
    assert [name for name in shapes if not name.startswith("h.")] == ["wte"]
    assert {name.removeprefix("h.0.") for name in shapes if name.startswith("h.0.")} == {
        name.removeprefix("h.1.") for name in shapes if name.startswith("h.1.")
    }
    assert shapes["h.1.mlp_fc.kernel"] == (C, F)
    scopes = model(3).scopes(backward=True)
    assert (scopes["embed"], scopes["ln_2"], scopes["attn_softmax"], scopes["loss"]) == (1, 3, 3, 1)
    assert "loss" not in model(3).scopes(backward=False)
    assert model(3).parts("fp32", backward=True)["mlp_fc"] == model(1).parts("fp32", backward=True)["mlp_fc"] * 3


def test_gradients_of_a_model_add_up_those_of_weights_that_two_layers_share():
    whole = model(2)
    arrays = {name: 0.3 * array for name, array in drawn(whole.shapes()).items()}
    logits_BTV, pullback = whole.forward(TOKENS, arrays)
    d_logits_BTV = np.random.default_rng(1).standard_normal(logits_BTV.shape)
    gradients = pullback(d_logits_BTV)
    assert gradients.keys() == arrays.keys()
    for name in ("wte", "h.0.attn_qkv.kernel", "h.1.ln_1.scale"):
        directions = {other: np.zeros_like(array) for other, array in arrays.items()}
        directions[name] = drawn({"d": arrays[name].shape}, seed=2)["d"]
        expected = slope(lambda moved: (whole.forward(TOKENS, moved)[0] * d_logits_BTV).sum(), arrays, directions)
        assert (gradients[name] * directions[name]).sum() == pytest.approx(expected, rel=1e-6)


def test_blocks_that_are_computed_again_repeat_all_but_what_is_kept():
    scores, products = 2 * B * H * T * T * D, 2 * B * T * (4 * C * C + 2 * C * F)
    assert model(3).recomputed_flops(scores=False, recompute=False) == 0
    assert model(3).recomputed_flops(scores=True, recompute=False) == 3 * scores
    assert model(3).recomputed_flops(scores=True, recompute=True) == 3 * (products + 3 * scores)
    ended = model(3, unrepeated="mlp_proj").recomputed_flops(scores=False, recompute=True, kept=("attn_qkv",))
    assert ended == 3 * (products + 2 * scores - 2 * B * T * (C * F + 3 * C * C))


@pytest.mark.parametrize(
    "work", [layers.shapes_of, lambda stack: layers.parts_of(stack, RowWork(B, "fp32", backward=False))]
)
def test_two_layers_of_one_name_are_refused(work):
    with pytest.raises(ValueError, match="two layers have the name x"):
        work(
            (
                layers.Linear("x", C, F, bias=False),
                layers.Pointwise("gelu", gelu, F, F),
                layers.Linear("x", F, C, bias=False),
            )
        )
