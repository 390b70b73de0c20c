"""Formulas of the parts of a step, of every problem that has them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarker import MODES
from benchmarker.hooks import parameters, registry

MODES_OF = {
    "attention": MODES[:2],
    "bert": MODES,
    "cg": MODES[:1],
    "conv": MODES[:2],
    "dit": MODES,
    "dlrm": MODES,
    "fft": MODES[:1],
    "gemm": MODES[:2],
    "gpt2": MODES,
    "latency": MODES[:1],
    "llama": MODES,
    "lstm": MODES[:2],
    "lu": MODES[:1],
    "mlp": MODES[:2],
    "moe": MODES,
    "spmv": MODES[:1],
    "stencil": MODES[:1],
    "resnet": MODES,
    "stream": MODES[:1],
    "vit": MODES,
}
WAYS = {
    "attention": ("impl", ("matmul", "einsum", "fused")),
    "bert": ("impl", ("matmul", "einsum", "fused")),
    "dit": ("impl", ("matmul", "einsum", "fused")),
    "gpt2": ("impl", ("matmul", "einsum", "fused")),
    "llama": ("impl", ("matmul", "einsum", "fused")),
    "lu": ("factor", ("same", "fp32")),
    "moe": ("dispatch", ("grouped", "capacity")),
    "stream": ("op", ("copy", "triad")),
    "vit": ("impl", ("matmul", "einsum", "fused")),
}
"""The parameter on which the parts of a problem depend, and its values."""
PROBLEMS = {name: registry.problem(name) for name in MODES_OF}
CASES = [
    (name, mode, params)
    for name, modes in MODES_OF.items()
    for mode in modes
    for params in ([{WAYS[name][0]: value} for value in WAYS[name][1]] if name in WAYS else [{}])
]
DECODE = {"phase": "decode", "depth": 20, "new_tokens": 5}
"""Tokens attend to 23 positions in the mean."""
OF_PHASES = [
    (name, "inference", {**size, **phase, "impl": impl})
    for name, size in (
        ("gpt2", {}),
        ("llama", {}),
        ("llama", {"size": "tinyllama-1.1b"}),
        ("moe", {}),
    )
    for phase in ({"phase": "prefill", "prompt_len": 24}, DECODE, DECODE | {"seq_len": 64})
    for impl in WAYS["gpt2"][1]
]


@pytest.mark.parametrize(("name", "mode", "params"), CASES)
def test_the_parts_are_the_scopes_and_their_flops_add_up(name, mode, params):
    problem = PROBLEMS[name]
    made = problem(**params)
    parts = made.parts(mode, "fp32")
    assert parts.keys() == made.scopes(mode).keys()
    assert sum(work.flops for work in parts.values()) == made.cost(mode, "fp32").flops
    assert all(work.bytes > 0 for work in parts.values())


@pytest.mark.parametrize(("name", "mode", "params"), [*CASES, *OF_PHASES])
def test_the_problems_that_measure_pieces_alone_have_the_flops_of_their_scopes(name, mode, params):
    made = PROBLEMS[name](**params)
    parts = made.parts(mode, "fp32")
    mode = "inference" if mode == "inference" else "forward_backward"
    alone: Counter[tuple[str, ...]] = Counter()
    for piece in made.pieces():
        kind = registry.problem(piece.problem)
        of_one = parameters.convert(kind, parameters.resolve(kind, piece.options, "cpu"))
        alone[piece.scopes] += piece.count * of_one.cost(mode, "fp32").flops
    assert alone == {scopes: sum(parts[scope].flops for scope in scopes) for scopes in alone}


@pytest.mark.parametrize(
    ("name", "params"), [("gpt2", {}), *((name, params) for name, _, params in OF_PHASES if name != "moe")]
)
def test_the_pieces_of_a_decoder_are_all_of_its_flops(name, params):
    made = PROBLEMS[name](**params)
    scopes = [scope for piece in made.pieces() for scope in piece.scopes]
    products = {name for name, work in made.parts("inference", "fp32").items() if work.flops}
    assert products <= set(scopes)
    assert len(set(scopes)) == len(scopes)


@pytest.mark.parametrize("size", ["18", "50"])
def test_the_pieces_of_resnet_are_all_of_its_flops_but_those_of_the_first_convolution(size):
    made = PROBLEMS["resnet"](size=size, layout="channels_first")
    products = {name for name, work in made.parts("inference", "fp32").items() if work.flops}
    assert {scope for piece in made.pieces() for scope in piece.scopes} == products - {"stem_conv"}
    assert {piece.options.get("layout") for piece in made.pieces()} == {"channels_first", None}


def test_products_of_a_phase_are_those_of_linear_layers():
    for params, is_linear in ((DECODE, True), ({}, False)):
        products = [piece.options for piece in PROBLEMS["gpt2"](**params).pieces() if piece.problem == "gemm"]
        assert [options.get("linear", False) for options in products] == [is_linear] * 5


def test_attention_to_a_cache_is_measured_at_the_mean_position_with_its_room():
    made = PROBLEMS["llama"](size="tinyllama-1.1b", phase="decode", depth=20, new_tokens=4, seq_len=64, batch_size=3)
    (piece,) = (piece for piece in made.pieces() if piece.problem == "attention")
    of_cache = {"seq_len": 64, "depth": 21, "heads": 32, "kv_heads": 4, "head_dim": 64, "batch_size": 3}
    assert piece.options == {**of_cache, "causal": True, "impl": "matmul"}
    paged = PROBLEMS["gpt2"](**DECODE, kv_cache="paged")
    assert not [piece for piece in paged.pieces() if piece.problem == "attention"]


@pytest.mark.parametrize("name", [name for name, (parameter, _) in WAYS.items() if parameter == "impl"])
@pytest.mark.parametrize("mode", MODES[:2])
def test_what_moves_between_parts_counts_beside_what_must_move(name, mode):
    problem = PROBLEMS[name]
    made = problem(batch_size=8)
    moved = sum(work.bytes for work in made.parts(mode, "fp32").values())
    assert moved > made.cost(mode, "fp32").bytes
    assert sum(work.bytes for work in made.parts(mode, "bf16").values()) == moved / 2


def test_parts_of_a_small_model_by_hand():
    """B·T = 6 tokens of width 4 in one block, 2 heads, 8 within the MLP, 10 words; fp32."""
    problem = PROBLEMS["gpt2"]
    made = problem(n_layer=1, d_model=4, n_head=2, d_ff=8, vocab_size=10, seq_len=3, batch_size=2)
    parts = made.parts("inference", "fp32")
    assert (parts["attn_qkv"].flops, parts["attn_qkv"].bytes) == (2 * 6 * 4 * 12, 4 * (6 * 4 + 4 * 12 + 6 * 12))
    assert (parts["attn_q_k"].flops, parts["attn_q_k"].bytes) == (2 * 2 * 2 * 9 * 2, 4 * (2 * 6 * 4 + 2 * 2 * 9))
    assert (parts["attn_softmax"].flops, parts["attn_softmax"].bytes) == (0, 4 * 2 * (2 * 2 * 9))
    # The residual is read beside the input of the last product of each branch.
    assert parts["mlp_proj"].bytes == 4 * (6 * 8 + 8 * 4 + 6 * 4 + 6 * 4)
    assert (parts["lm_head"].flops, parts["lm_head"].bytes) == (2 * 6 * 4 * 10, 4 * (6 * 4 + 40 + 6 * 10))
    assert parts["embed"].bytes == 4 * ((6 + 3) * 4 + 6 * 4)
    training = made.parts("training", "fp32")
    # Backward: dX = dY·Wᵀ and dW = Xᵀ·dY read X, W and dY, and write dX and dW.
    assert training["attn_qkv"].bytes == 4 * ((24 + 48 + 72) + (24 + 48 + 72) + (24 + 48))
    assert training["optimizer"].flops == 0
    twice = problem(n_layer=2, d_model=4, n_head=2, d_ff=8, vocab_size=10, seq_len=3, batch_size=2)
    assert twice.parts("inference", "fp32")["mlp_fc"].flops == 2 * parts["mlp_fc"].flops
