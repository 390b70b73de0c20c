"""Engines of text generation: overlapping requests get the tokens of the reference, in every framework."""

import dataclasses

import numpy as np
import pytest
from support.models import calls_of_jit, problem_of

from benchmarker import open_bench
from benchmarker.worker.serve import check

pytestmark = pytest.mark.slow
DECODERS = ("gpt2", "llama", "moe")
OPTIONS = {"gpt2": {}, "llama": {}, "moe": {"dispatch": "grouped"}}
ENGINES = [("torch", impl) for impl in ("matmul", "einsum", "fused")] + [("jax", impl) for impl in ("matmul", "einsum")]


def made(framework, name, precision="fp32", impl="matmul", **more):
    """An engine at a small size, with what a check needs."""
    pytest.importorskip(framework)
    options = {**OPTIONS[name], **problem_of(name).engine_options(4, 64), **more}
    bench = open_bench(name, framework, "cpu", precision=precision, impl=impl, compiled=framework == "jax", **options)
    size = bench.problem.small()
    data = bench.data(size, 1)
    engine = bench.hooks.build_engine(framework=bench.framework, problem=size, case=bench.case, data=data)
    return engine, size, data, bench.case


@pytest.mark.parametrize(("framework", "impl"), ENGINES)
@pytest.mark.parametrize("name", DECODERS)
def test_tokens_are_those_of_the_reference(framework, name, impl):
    found = check(*made(framework, name, impl=impl))
    assert found.ok, found


@pytest.mark.parametrize("precision", ["fp64", "bf16", "mixed_bf16"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", DECODERS)
def test_other_precisions_choose_tokens_within_their_bound(framework, name, precision):
    found = check(*made(framework, name, precision))
    assert found.ok, found


@pytest.mark.parametrize("weight_type", ["int8", "int4"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_quantised_weights_are_served(framework, weight_type):
    found = check(*made(framework, "llama", weight_type=weight_type))
    assert found.ok, found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("fault", ["swapped", "stale", "shifted"])
def test_a_faulty_engine_is_found(fault, precision):
    engine, *rest = made("torch", "llama", precision)
    last = np.zeros(engine.slots, int)

    def decode():
        nonlocal last
        tokens = engine.decode()
        before, last = last, tokens
        return {"swapped": tokens[::-1], "stale": before, "shifted": (tokens + 1) % engine.vocab_size}[fault]

    found = check(dataclasses.replace(engine, decode=decode), *rest)
    assert not found.ok, found


def test_the_cache_of_a_finished_request_does_not_show():
    """Positions that an earlier and longer request filled are masked."""
    engine, size, data, _ = made("jax", "llama", "fp64")
    engine.fill(0, np.arange(20))
    for _ in range(5):
        engine.decode()
    prompt = np.array([5, 7, 11])
    text = [*prompt, engine.fill(0, prompt)]
    text += [int(engine.decode()[0]) for _ in range(4)]
    (logits_TV,) = size.logits(data, np.array([text[:-1]]))
    assert logits_TV[len(prompt) - 1 :].argmax(axis=-1).tolist() == text[len(prompt) :]


def test_no_pass_of_jax_copies_the_cache():
    """XLA may copy a donated array: then a pass needs temporary memory of its size."""
    pytest.importorskip("jax")
    bench = open_bench(
        "llama", "jax", "cpu", compiled=True, n_layer=2, d_model=128, n_head=4, n_kv_head=4, d_ff=64, vocab_size=31,
        **problem_of("llama").engine_options(8, 1024),
    )  # fmt: skip
    with calls_of_jit() as lowered:
        engine = bench.hooks.build_engine(
            framework=bench.framework,
            problem=bench.problem,
            case=bench.case,
            data=bench.data(bench.problem, 1),
        )
        engine.fill(3, np.arange(16))
        engine.decode()
    blocks, rows, room, width = bench.problem.cache_shape
    of_cache = 2 * blocks * rows * room * width * 4
    for each in lowered:
        memory = each.compile().memory_analysis()
        assert memory.alias_size_in_bytes >= of_cache
        assert memory.temp_size_in_bytes < of_cache / 4, (memory.temp_size_in_bytes, of_cache)
