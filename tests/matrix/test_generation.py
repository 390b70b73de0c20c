"""Text generation: tokens and logits with a cache are those without one, and its work is counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from support.models import calls_of_jit, counted_flops, jax_workload, problem_of, torch_workload

from benchmarker import Case, UserError, Workload
from benchmarker.hooks import parameters
from benchmarker.worker.correctness import check
from benchmarker_problems.generation import page_table, step_and_tokens

DECODERS = ("gpt2", "llama", "moe")
SIZE = {"gpt2": "small", "llama": "llama-3.2-1b", "moe": "moe-small"}
PHASES = ("prefill", "decode", "generate")
TINY = {"n_layer": 2, "d_model": 24, "n_head": 4, "d_ff": 40, "vocab_size": 61, "batch_size": 3}
IMPLS = ("einsum", "matmul", "fused")
OTHERS = ("fp64", "tf32", "bf16", "fp16", "mixed_bf16", "mixed_fp16")
"""Precisions other than fp32."""


def tiny(name, phase, **options):
    """A tiny decoder in a phase."""
    lengths = {"prefill": {"prompt_len": 9}, "decode": {"depth": 9, "new_tokens": 6}}
    lengths["generate"] = {"prompt_len": 9, "new_tokens": 7}
    grouped = {} if name == "gpt2" else {"n_kv_head": 2}
    return problem_of(name)(**{**TINY, **grouped, "phase": phase, **lengths[phase], **options})


def made(framework, name, params, precision="fp32") -> Workload:
    """A phase as a step of a framework; skips where it is not installed."""
    pytest.importorskip(framework)
    return {"jax": jax_workload, "torch": torch_workload}[framework](name, params, "inference", precision)


def tokens_of(workload: Workload, steps: int) -> np.ndarray:
    """The tokens that so many steps choose, [B, N]."""
    return joined(workload.outputs(workload.step())["tokens"] for _ in range(steps))


def tokens_of_reference(name: str, params: Any) -> np.ndarray:
    """The tokens that the reference chooses for the data of `made`."""
    data = params.data("fp32", np.random.default_rng(0), 1)
    return joined(step["tokens"] for step in params.reference(data, "inference"))


def joined(steps: Iterable[np.ndarray]) -> np.ndarray:
    """The tokens of steps, each [B] or [B, N], as [B, N]."""
    return np.concatenate([step.reshape(len(step), -1) for step in steps], axis=1)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "moe"))])
def test_greedy_tokens_are_those_of_the_reference_without_a_cache(name, framework, phase):
    """In fp32 the weights drawn here have no near ties."""
    params = tiny(name, phase)
    steps = {"prefill": 1, "decode": 6, "generate": 1}[phase]
    found = tokens_of(made(framework, name, params), steps)
    assert found.shape == (3, {"prefill": 1, "decode": 6, "generate": 7}[phase])
    assert (found == tokens_of_reference(name, params)).all()
    assert phase == "prefill" or len(np.unique(found)) > 2


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_request_gives_each_token_of_a_step_and_leaves_the_steps_as_they_are(framework, phase):
    params = tiny("gpt2", phase)
    workload, other = made(framework, "gpt2", params), made(framework, "gpt2", params)
    assert workload.tokens
    expected = {"prefill": ["first"], "decode": ["next"] * 6, "generate": ["first"] + ["next"] * 6}
    found = []
    for _ in range(2):
        told: list[str] = []
        workload.tokens(told.append)
        assert told == expected[phase]
        found.append(tokens_of(workload, 1))
    assert (np.concatenate(found, axis=1) == np.concatenate([tokens_of(other, 1) for _ in range(2)], axis=1)).all()


@pytest.mark.parametrize("phase", PHASES)
def test_a_request_begins_with_its_prompt_on_the_host_and_each_token_is_fetched(phase):
    """Passes of a request have the shapes and strides of a step, so that nothing is compiled again."""
    params = tiny("gpt2", phase)
    data = params.data("fp32", np.random.default_rng(0), 2)
    log = []

    def put(array):
        log.append(("put", array.shape))
        return array

    def run(sequence_BS, tokens_BT, position):
        log.append(("run", tokens_BT.shape, tokens_BT.strides))
        return sequence_BS[:, :1].copy(), position + tokens_BT.shape[1], None

    step, tokens = step_and_tokens(params, data, put, lambda token: log.append(("fetch", token.shape)), 0, run)
    log.clear()
    step()
    of_step = list(log)
    log.clear()
    names: list[str] = []
    tokens(names.append)
    assert [each for each in log if each[0] == "run"][: len(of_step)] == of_step
    assert [each[0] for each in log] == [*(["put"] if phase != "decode" else []), *["run", "fetch"] * len(names)]
    assert {each[1] for each in log if each[0] == "fetch"} == {(3, 1)}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_decode_begins_again_at_its_depth(framework):
    params = tiny("llama", "decode")
    found = tokens_of(made(framework, "llama", params), 13)
    assert (found[:, 6:12] == found[:, :6]).all()
    assert (found[:, 12] == found[:, 0]).all()
    assert (found[:, :6] == tokens_of_reference("llama", params)).all()


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_room_that_stays_empty_changes_nothing(framework):
    fit, wide = (
        tokens_of(made(framework, "gpt2", tiny("gpt2", "generate", **room)), 1) for room in ({}, {"seq_len": 40})
    )
    assert (fit == wide).all()


@pytest.mark.slow
@pytest.mark.parametrize(("impl", "precision"), [*((impl, "fp32") for impl in IMPLS), *(("matmul", x) for x in OTHERS)])
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_logits_of_every_step_are_right(request, name, framework, impl, precision):
    """Every phase in fp32, but for JAX's fused attention, which does not fit the cache; then both in turn."""
    if framework == "jax" and precision == "fp64":
        request.getfixturevalue("x64")
    problem = problem_of(name)
    phases = ("generate",) if precision != "fp32" else PHASES[:1] if (framework, impl) == ("jax", "fused") else PHASES
    for phase in phases:
        params = problem(phase=phase, impl=impl).small()
        data = params.data(precision, np.random.default_rng(0), 1)
        case = Case(problem=name, framework=framework, device="cpu", mode="inference", precision=precision, params={})
        found = check(made(framework, name, params, precision), data, params, case)
        assert found.ok, (phase, found)


def test_a_wrong_cache_fails_the_check():
    """The check has teeth: with the keys of another position, it fails."""
    torch = pytest.importorskip("torch")
    problem = problem_of("llama")
    params = problem(phase="decode").small()
    data = params.data("fp32", np.random.default_rng(0), 1)
    case = Case(problem="llama", framework="torch", device="cpu", mode="inference", precision="fp32", params={})
    copy = torch.Tensor.index_copy_

    def shifted(self, dim, index, source):
        return copy(self, dim, torch.clamp(index - 1, min=0), source)

    with pytest.MonkeyPatch.context() as patch:
        workload = made("torch", "llama", params)
        patch.setattr(torch.Tensor, "index_copy_", shifted)
        assert not check(workload, data, params, case).ok


@pytest.mark.parametrize("mode", ["forward_backward", "training"])
def test_a_phase_needs_inference(mode):
    with pytest.raises(UserError, match="--phase=decode needs --mode=inference"):
        tiny("llama", "decode").refuse(mode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_len": 8}, "prompt_len=8 needs phase=prefill or generate"),
        ({"phase": "prefill", "depth": 8}, "depth=8 needs phase=decode"),
        ({"phase": "decode", "new_tokens": 0}, "new_tokens=0 is too small for phase=decode: at least 1"),
        ({"phase": "decode", "seq_len": 20, "depth": 20}, "seq_len=20 has no room for the 52 positions of the phase"),
        ({"decoding": "forced"}, "decoding=forced needs a phase"),
    ],
)
@pytest.mark.parametrize("name", DECODERS)
def test_lengths_that_do_not_fit_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        problem_of(name)(**options)


def test_experts_with_a_capacity_have_no_phase():
    with pytest.raises(ValueError, match="dispatch=capacity needs phase=none"):
        problem_of("moe")(phase="decode", dispatch="capacity")
    assert problem_of("moe")(phase="decode").dispatch == "grouped"
    assert problem_of("moe")().dispatch == "capacity"


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({"phase": "prefill", "prompt_len": 512}, "GPT-2 small prefill, B=1 P=512"),
        ({"phase": "decode", "batch_size": 8}, "GPT-2 small decode, B=8 at 128+32"),
        ({"phase": "generate", "seq_len": 1024}, "GPT-2 small generate, B=1 P=128 N=32 S=1024"),
    ],
)
def test_the_title_states_the_phase_and_its_lengths(options, title):
    problem = problem_of("gpt2")
    assert problem(**options).title("inference") == title


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("impl", ["matmul", "fused"])
@pytest.mark.parametrize("phase", PHASES)
def test_the_parts_are_the_scopes_and_their_flops_add_up(name, impl, phase):
    params = tiny(name, phase, impl=impl)
    parts = params.parts("inference", "bf16")
    assert parts.keys() == params.scopes("inference").keys()
    assert {"cache_write", "next_token"} < parts.keys()
    assert sum(work.flops for work in parts.values()) == params.cost("inference", "bf16").flops
    assert all(work.bytes > 0 for work in parts.values())


@pytest.mark.parametrize("name", DECODERS)
def test_a_text_costs_its_prompt_and_each_token_at_its_position(name):
    def cost(phase, **options):
        return tiny(name, phase, **options).cost("inference", "fp32")

    whole, prompt = cost("generate"), cost("prefill")
    tokens = [cost("decode", depth=9 + number, new_tokens=1) for number in range(6)]
    assert whole.flops == prompt.flops + sum(each.flops for each in tokens)
    assert whole.bytes == prompt.bytes + sum(each.bytes for each in tokens)
    assert (whole.samples, whole.tokens, whole.input_tokens, whole.output_tokens) == (3, 21, 27, 21)
    assert (prompt.tokens, prompt.input_tokens, prompt.output_tokens) == (27, 27, 0)
    assert (tokens[0].tokens, tokens[0].input_tokens, tokens[0].output_tokens) == (3, 0, 3)
    # A step of decode counts at the mean of the positions that it goes through.
    assert 6 * cost("decode").flops == sum(each.flops for each in tokens)
    assert 6 * cost("decode").bytes == sum(each.bytes for each in tokens)


def test_the_cost_of_a_token_by_hand():
    problem = problem_of("llama")
    cost = problem(size="llama-3.1-8b", phase="decode", depth=1023, new_tokens=1).cost("inference", "bf16")
    read = 7_504_924_672 + 4096  # all weights but the rows of the embedding that no token selects
    assert cost.bytes == 2 * read + 1024 * 128 * 1024 + 8  # 128 KiB of keys and values a position, and two tokens
    of_layer = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336) + 4 * 1024 * 4096
    assert cost.flops == 32 * of_layer + 2 * 4096 * 128_256
    assert cost.tokens == 1


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("phase", PHASES)
def test_flops_as_pytorch_counts_them(name, phase):
    pytest.importorskip("torch")
    params = tiny(name, phase)
    workload = made("torch", name, params)
    # A product over the whole cache computes positions that are masked: more than the work.
    steps = {"prefill": 0, "decode": 1, "generate": 6}[phase]
    keys = {"decode": 9 + 7 / 2, "generate": 9 + 7 / 2}.get(phase, 0)
    masked = steps * (params.seq_len - keys) * 4 * params.batch_size * params.n_layer * params.d_model
    assert counted_flops(workload) == params.cost("inference", "fp32").flops + masked


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_no_step_of_jax_copies_the_cache(name, batch_size):
    """XLA may copy a donated array: then a step needs temporary memory of its size."""
    pytest.importorskip("jax")
    wide = {"d_model": 128, "n_head": 4, "d_ff": 64, "vocab_size": 31, "batch_size": batch_size}
    heads = {} if name == "gpt2" else {"n_kv_head": 4}
    params = tiny(name, "decode", **wide, **heads, depth=1000, new_tokens=24)
    with calls_of_jit() as lowered:
        made("jax", name, params).step()
    memory = lowered[-1].compile().memory_analysis()
    blocks, rows, room, width = params.cache_shape
    of_cache = 2 * blocks * rows * room * width * 4
    assert memory.alias_size_in_bytes >= of_cache
    assert memory.temp_size_in_bytes < of_cache / 4, (memory.temp_size_in_bytes, of_cache)


def test_options_of_a_phase_are_recorded_as_they_count():
    params = parameters.values(tiny("gpt2", "decode"))
    assert (params["depth"], params["new_tokens"], params["prompt_len"], params["seq_len"]) == (9, 6, 0, 15)


@pytest.mark.parametrize(("phase", "impl"), [("none", "fused"), ("prefill", "fused"), ("decode", "matmul")])
@pytest.mark.parametrize("name", DECODERS)
def test_the_defaults_of_accelerators_suit_a_phase(name, phase, impl):
    values = parameters.resolve(problem_of(name), {"phase": phase, "size": SIZE[name]}, "cuda")
    assert values["impl"] == impl
    assert values["seq_len"] == {"none": 1024, "prefill": 128, "decode": 160}[phase]
    given = parameters.resolve(problem_of(name), {"phase": "decode", "impl": "fused", "seq_len": "512"}, "cuda")
    assert (given["impl"], given["seq_len"]) == ("fused", 512)


PAGED = {"prompt_len": 30, "new_tokens": 4, "decoding": "forced"}
"""33 positions: three pages of each sequence, the last of them begun by the tokens that are chosen."""


@pytest.mark.parametrize("impl", ["matmul", pytest.param("fused", marks=pytest.mark.slow)])
@pytest.mark.parametrize("framework", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_pages_give_the_logits_of_a_cache_in_one_piece(name, framework, impl):
    if (framework, impl) == ("jax", "fused"):
        pytest.skip("JAX's fused attention does not fit a cache")
    fit, paged = (
        made(framework, name, tiny(name, "generate", **PAGED, impl=impl, kv_cache=cache)) for cache in ("fit", "paged")
    )
    expected, found = (each.outputs(each.step())["logits"] for each in (fit, paged))
    assert expected.shape == (3, 4, 61)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_logits_of_every_step_are_right_with_pages(name, framework, precision):
    problem = problem_of(name)
    for phase in PHASES:
        params = problem(phase=phase, kv_cache="paged").small()
        assert params.kv_cache == "paged"
        data = params.data(precision, np.random.default_rng(0), 1)
        case = Case(problem=name, framework=framework, device="cpu", mode="inference", precision=precision, params={})
        found = check(made(framework, name, params, precision), data, params, case)
        assert found.ok, (phase, found)


def test_pages_that_two_sequences_share_change_the_logits(monkeypatch):
    """The table is used: with the pages of the first sequence for all, the others are wrong."""
    pytest.importorskip("torch")
    params = tiny("llama", "generate", **PAGED, kv_cache="paged")
    right = made("torch", "llama", params)
    shared = np.tile(page_table(params)[:2], (3, 1))
    monkeypatch.setattr("benchmarker_problems.generation.torch.page_table", lambda _: shared)
    wrong = made("torch", "llama", params)
    expected, found = (each.outputs(each.step())["logits"] for each in (right, wrong))
    assert np.abs(found - expected).max() > 0.01 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "heads"), [("gpt2", 4), ("llama", 2)])
def test_each_page_belongs_to_one_sequence_and_head_in_random_order(name, heads):
    params = tiny(name, "generate", **PAGED, kv_cache="paged")
    table = page_table(params)
    assert table.shape == (3 * heads, 3)
    assert sorted(table.ravel()) == list(range(params.cache_shape[1]))
    # The pages of the heads of a sequence lie beside each other, and follow their own order.
    by_head = table.reshape(3, heads, 3)
    assert (by_head - by_head[:, :1] == np.arange(heads)[:, None]).all()
    assert (np.diff(table[::heads].ravel()) != heads).any()
    assert page_table(tiny(name, "generate", **PAGED)) is None


def test_the_bytes_of_pages_are_whole_and_those_that_are_read_stay():
    problem = problem_of("llama")
    fit, paged = (tiny("llama", "generate", **PAGED, kv_cache=cache) for cache in ("fit", "paged"))
    assert fit.cache_bytes("fp32") == 2 * 2 * 3 * 2 * 33 * 6 * 4  # of 2 blocks, 3 sequences, 2 heads
    assert paged.cache_bytes("fp32") == 2 * 2 * 3 * 2 * 48 * 6 * 4
    assert paged.cost("inference", "fp32") == fit.cost("inference", "fp32")
    assert paged.parts("inference", "fp32") == fit.parts("inference", "fp32")
    assert problem(phase="decode", kv_cache="paged").title("inference").endswith("at 128+32 paged")


@pytest.mark.parametrize(
    ("name", "size", "context"),
    [("gpt2", "xl", 1024), ("gpt2", "2.7b", 2048), ("llama", "llama-3.1-8b", 131_072), ("moe", "mixtral-8x7b", 32_768)],
)
def test_the_largest_cache_has_room_for_the_context_of_the_model(name, size, context):
    problem = problem_of(name)
    params = problem(size=size, phase="generate", kv_cache="max")
    assert params.seq_len == context == params.cache_shape[2]
    assert problem(**parameters.values(params)) == params
    assert params.small().seq_len == 32
    assert {own.seq_len for _, own in params.phases().values()} == {context}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt2", {"kv_cache": "paged"}, "kv_cache=paged needs a phase"),
        ("gpt2", {"kv_cache": "max", "phase": "decode", "seq_len": 512}, "seq_len=512 needs kv_cache=fit or paged"),
        (
            "gpt2",
            {"kv_cache": "max", "phase": "decode", "depth": 1020},
            "seq_len=1024 has no room for the 1052 positions",
        ),
        ("llama", {"kv_cache": "max", "phase": "decode"}, "none is published for size=cs336-small"),
        ("moe", {"kv_cache": "max", "phase": "decode"}, "none is published for size=moe-small"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        problem_of(name)(**options)
