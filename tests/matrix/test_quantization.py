"""Weight-only quantisation: integers and scales, their products in each framework, and their bytes."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
from support.models import jax_workload, problem_of, torch_workload

from benchmarker import PRECISIONS, Case, UserError
from benchmarker.hooks import parameters
from benchmarker.worker.correctness import check, relative_error
from benchmarker_problems.quantization import dequantized, is_quantized, quantize, quantized

DECODERS = ("gpt2", "llama", "moe")
INTEGERS = ("int8", "int4")
LARGEST = {"int8": 127, "int4": 7}
PHASES = ("prefill", "decode", "generate")
SUPPORTED = {
    "jax": ("fp64", "fp32", "bf16", "fp16", "mixed_bf16", "mixed_fp16"),
    "torch": ("fp32", "bf16", "fp16", "mixed_bf16", "mixed_fp16"),
}
"""Precisions with quantised weights on a CPU."""
WORKLOADS = {"jax": jax_workload, "torch": torch_workload}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers in fp32."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def small(name, phase, weight_type, **options):
    """A decoder in a phase at the size of a check."""
    problem = problem_of(name)
    return problem(phase=phase, weight_type=weight_type, **options).small()


def found(name, framework, params, precision):
    """The check of a decoder."""
    data = params.data(precision, np.random.default_rng(0), 1)
    case = Case(problem=name, framework=framework, device="cpu", mode="inference", precision=precision, params={})
    return check(WORKLOADS[framework](name, params, "inference", precision), data, params, case)


@pytest.mark.parametrize("experts", [(), (3,)])
@pytest.mark.parametrize(("weight_type", "inputs_of_a_scale"), [("int8", 96), ("int4", 32)])
def test_integers_are_within_half_a_step_of_the_weights(weight_type, inputs_of_a_scale, experts):
    """The step of every weight is looked up one by one."""
    kernel = normal(*experts, 96, 5) * np.float32(0.02)
    integers, scale = quantize(kernel, weight_type)
    assert (integers.dtype, integers.shape) == (np.int8, kernel.shape)
    assert np.abs(integers).max() == LARGEST[weight_type]
    for *expert, row, output in np.ndindex(kernel.shape):
        step = scale[(*expert, row // inputs_of_a_scale, output)]
        weight = kernel[(*expert, row, output)]
        assert abs(integers[(*expert, row, output)] * step - weight) <= 0.5001 * step
    whole = dequantized({"a.kernel": integers, "a.kernel_scale": scale})
    assert whole.keys() == {"a.kernel"}
    assert np.abs(whole["a.kernel"] - kernel).max() <= 0.5001 * scale.max()


def test_a_group_without_weights_stays_zero():
    kernel = normal(64, 3)
    kernel[:32, 1] = 0
    integers, scale = quantize(kernel, "int4")
    assert (integers[:32, 1] == 0).all()
    assert np.isfinite(scale).all()


@pytest.mark.parametrize("weight_type", INTEGERS)
@pytest.mark.parametrize("name", DECODERS)
def test_only_the_kernels_of_linear_layers_are_quantised(name, weight_type):
    data = small(name, "decode", weight_type).data("fp32", np.random.default_rng(0), 1)
    of_block = {
        "gpt2": {"attn_qkv", "attn_proj", "mlp_fc", "mlp_proj"},
        "llama": {"attn_qkv", "attn_proj", "mlp_fc", "mlp_proj", "lm_head"},
        "moe": {"attn_qkv", "attn_proj", "moe_fc", "moe_proj", "lm_head"},
    }[name]
    integers = {key.split(".")[-2] for key, weight in data.weights.items() if weight.dtype == np.int8}
    assert integers == of_block
    assert all(is_quantized(key) for key, weight in data.weights.items() if weight.dtype == np.int8)
    full = small(name, "decode", "full").data("fp32", np.random.default_rng(0), 1)
    assert dequantized(data.weights).keys() == full.weights.keys()


@pytest.mark.parametrize(("weight_type", "precision"), [(w, p) for w in INTEGERS for p in ("fp32", "bf16", "fp16")])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 64, 96), (5, 96, 61), (33, 32, 16)])
def test_the_products_of_pytorch_are_those_of_numpy(weight_type, precision, rows, inputs, outputs):
    """Its kernels take the integers as they are packed here: another order, or offset, would be visible."""
    torch = pytest.importorskip("torch")
    from benchmarker_problems.quantization.torch import linear

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    integers, scale = quantize(normal(inputs, outputs), weight_type)
    x, scale, bias = (torch.tensor(each).to(dtype) for each in (normal(rows, inputs, seed=1), scale, normal(outputs)))
    layer = linear(weight_type, inputs, outputs)
    layer.load_state_dict({"weight": torch.tensor(integers.T.copy()), "kernel_scale": scale, "bias": bias}, assign=True)
    kernel = dequantized({"a.kernel": integers, "a.kernel_scale": scale.double().numpy()})["a.kernel"]
    with torch.inference_mode():
        y = layer(x)
    assert y.dtype == dtype
    exact = x.double().numpy() @ kernel + bias.double().numpy()
    assert relative_error(y.double().numpy(), exact) < 4 * PRECISIONS[precision].roundoff


@pytest.mark.parametrize("weight_type", INTEGERS)
def test_int4_takes_half_a_byte_on_the_device(weight_type):
    """XLA packs two integers into a byte, and so does PyTorch."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    from benchmarker_plugins.frameworks.jax import DTYPES
    from benchmarker_problems.quantization.torch import linear

    stored = 128 * 64 // {"int8": 1, "int4": 2}[weight_type]
    integers, scale = quantize(normal(128, 64), weight_type)
    on_device = jax.numpy.asarray(integers, DTYPES[weight_type])
    assert jax.jit(lambda x: x + x).lower(on_device).compile().memory_analysis().argument_size_in_bytes == stored
    layer = linear(weight_type, 128, 64, bias=False)
    tensors = {"weight": torch.tensor(integers.T.copy()), "kernel_scale": torch.tensor(scale)}
    layer.load_state_dict(tensors, assign=True)
    assert layer.weight.nbytes == stored


@pytest.mark.parametrize("weight_type", INTEGERS)
@pytest.mark.parametrize("framework", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_the_logits_of_every_step_are_right_in_bf16(request, framework, weight_type):
    """A part of the next test."""
    pytest.importorskip(framework)
    if framework == "jax":
        request.getfixturevalue("quick_xla")
    check_found = found("llama", framework, small("llama", "decode", weight_type), "bf16")
    assert check_found.ok, check_found


@pytest.mark.slow
@pytest.mark.parametrize("weight_type", INTEGERS)
@pytest.mark.parametrize(
    ("framework", "precision"), [(name, each) for name, precisions in SUPPORTED.items() for each in precisions]
)
@pytest.mark.parametrize("name", DECODERS)
def test_all_that_is_listed_is_right(request, name, framework, precision, weight_type):
    pytest.importorskip(framework)
    if framework == "jax":
        request.getfixturevalue("x64" if precision == "fp64" else "quick_xla")
    for phase in PHASES:
        check_found = found(name, framework, small(name, phase, weight_type), precision)
        assert check_found.ok, (phase, check_found)


@pytest.mark.parametrize(
    ("framework", "weight_type", "name"),
    [
        *((framework, weight_type, "llama") for framework in WORKLOADS for weight_type in INTEGERS),
        *(
            pytest.param(framework, weight_type, name, marks=pytest.mark.slow)
            for framework in WORKLOADS
            for weight_type in INTEGERS
            for name in ("gpt2", "moe")
        ),
    ],
)
def test_greedy_tokens_are_those_of_the_reference(framework, weight_type, name):
    """So they are equal in JAX and PyTorch; those of full weights are others, so that the integers are used."""
    pytest.importorskip(framework)
    params = dataclasses.replace(small(name, "generate", weight_type), decoding="greedy", new_tokens=7)
    workload = WORKLOADS[framework](name, params, "inference")
    tokens = workload.outputs(workload.step())["tokens"]
    data = params.data("fp32", np.random.default_rng(0), 1)
    (expected,) = params.reference(data, "inference")
    assert (tokens == expected["tokens"]).all()


@pytest.mark.parametrize("weight_type", INTEGERS)
def test_the_check_tells_quantised_weights_from_full_ones(weight_type):
    pytest.importorskip("torch")
    params = small("llama", "decode", weight_type)
    rng = partial(np.random.default_rng, 0)
    full = dataclasses.replace(params, weight_type="full").data("fp32", rng(), 1)
    integers = params.data("fp32", rng(), 1)
    exact, rounded = (next(params.reference(data, "inference"))["logits"] for data in (full, integers))
    assert relative_error(rounded, exact) > 10 * PRECISIONS["fp32"].bound


def test_bytes_of_a_token_by_hand():
    """Llama-3.1-8B: 6.98 G weights in blocks, 0.53 G in the output head, and the gains of 65 norms."""
    problem = problem_of("llama")
    size = {"size": "llama-3.1-8b", "phase": "decode", "depth": 1023, "new_tokens": 1}
    moved = {
        weight_type: problem(weight_type=weight_type, **size).cost("inference", "bf16").bytes
        for weight_type in ("full", *INTEGERS)
    }
    products = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14_336) + 4096 * 128_256
    outputs = 32 * (6144 + 4096 + 2 * 14_336 + 4096) + 128_256
    assert moved["full"] - moved["int8"] == 2 * products - products - 2 * outputs
    assert moved["full"] - moved["int4"] == 2 * products - products // 2 - 2 * products // 32
    whole = {each: problem(weight_type=each, **size).weight_bytes("bf16") for each in moved}
    assert whole["full"] == 2 * 8_030_261_248
    assert whole["full"] - whole["int8"] == moved["full"] - moved["int8"]


@pytest.mark.parametrize("weight_type", INTEGERS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", DECODERS)
def test_the_work_is_that_of_full_weights_with_fewer_bytes(name, phase, weight_type):
    problem = problem_of(name)
    params = problem(phase=phase, weight_type=weight_type)
    full = dataclasses.replace(params, weight_type="full")
    cost, of_full = (each.cost("inference", "bf16") for each in (params, full))
    assert cost.flops == of_full.flops
    parts, parts_of_full = (each.parts("inference", "bf16") for each in (params, full))
    saved = {scope: work.weight_bytes - parts[scope].weight_bytes for scope, work in parts_of_full.items()}
    layers = {"attn_qkv", "attn_proj", "mlp_fc", "mlp_proj", "moe_fc", "moe_proj"} & saved.keys()
    assert {scope for scope, count in saved.items() if count} == layers | ({"lm_head"} if name != "gpt2" else set())
    assert sum(saved.values()) == of_full.bytes - cost.bytes
    assert sum(work.flops for work in parts.values()) == cost.flops


@pytest.mark.parametrize("weight_type", ["full", *INTEGERS])
@pytest.mark.parametrize("name", DECODERS)
def test_the_bytes_of_weights_are_those_of_the_arrays(name, weight_type):
    params = small(name, "decode", weight_type)
    weights = params.data("fp32", np.random.default_rng(0), 1).weights
    halves = {"int4": 2}.get(weight_type, 1)
    stored = sum(each.nbytes // (halves if each.dtype == np.int8 else 1) for each in weights.values())
    assert params.weight_bytes("fp32") == stored


def test_types_and_title_state_the_type_of_the_weights():
    problem = problem_of("gpt2")
    params = problem(phase="decode", weight_type="int4")
    types = params.numerics("inference", "bf16")
    assert (types.parameter, types.compute, types.accumulate) == ("int4", "bf16", "fp32")
    assert params.title("inference") == "GPT-2 small decode, B=1 at 128+32 int4 weights"
    assert problem(phase="decode").numerics("inference", "bf16") == PRECISIONS["bf16"]


@pytest.mark.parametrize("weight_type", INTEGERS)
@pytest.mark.parametrize("name", DECODERS)
def test_quantised_weights_need_a_phase_and_whole_groups(name, weight_type):
    problem = problem_of(name)
    with pytest.raises(UserError, match=f"weight_type={weight_type} needs a phase"):
        parameters.resolve(problem, {"weight_type": weight_type}, "cpu")
    with pytest.raises(ValueError, match="needs products of a multiple of 32 inputs, not d_ff=40"):
        problem(phase="decode", weight_type=weight_type, d_ff=40)


def test_weights_that_are_not_quantised_are_not_touched():
    weights = {"wte": normal(4, 3), "a.bias": normal(3), "h.0.moe_router.kernel": normal(32, 4)}
    assert all(after is weights[name] for name, after in quantized(weights, "int4").items())


@pytest.mark.parametrize("weight_type", INTEGERS)
def test_what_pytorch_has_no_product_for_is_refused(command, weight_type):
    pytest.importorskip("torch")
    words = ("--framework=torch", "--problem=gpt2", "--phase=decode", f"--weight-type={weight_type}")
    done = command("check", *words, "--precision=fp64")
    assert done.returncode == 2
    assert f"does not support --weight-type={weight_type} with --precision=fp64" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("framework", list(WORKLOADS))
def test_a_record_states_the_type_of_the_weights(command, framework):
    pytest.importorskip(framework)
    size = ("--n-layer=1", "--d-model=32", "--n-head=4", "--d-ff=64", "--vocab-size=31", "--depth=4", "--new-tokens=2")
    words = (f"--framework={framework}", "--problem=gpt2", "--phase=decode", "--weight-type=int4", *size)
    done = command("run", *words, "--blocks=3", "--power=none", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert (record["types"]["parameter"], record["types"]["compute"]) == ("int4", "fp32")
    assert record["case"]["params"]["weight_type"] == "int4"
    assert record["check"]["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "moe"])
def test_compiled_steps_of_pytorch_are_right(command, name):
    pytest.importorskip("torch")
    words = ("--framework=torch", f"--problem={name}", "--phase=decode", "--weight-type=int8", "--precision=bf16")
    done = command("check", *words, "--compile", "--json")
    assert json.loads(done.stdout)["ok"], done.stdout


@pytest.mark.parametrize("experts", [(), (3,)])
def test_what_is_given_to_kernels_of_cuda_has_the_shapes_that_they_take(monkeypatch, experts):
    """By the checks that PyTorch makes of calls with tensors that have a device but no numbers."""
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    from benchmarker_problems.quantization.torch import Quantized

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    shape = (*experts, 96, 61)
    with FakeTensorMode(), torch.device("cuda"):
        for weight_type, groups, packed in (("int8", 1, (61, 96)), ("int4", 3, (8, 3, 32, 1))):
            module = Quantized(weight_type, shape)
            scale = torch.empty(*experts, groups, 61, dtype=torch.bfloat16)
            module.load_state_dict({"weight": module.weight, "kernel_scale": scale}, assign=True)
            assert module.weight.shape == (*experts, *packed)
            kernel = (module.weight, module.kernel_scale)
            first = [each.select(0, 0) if experts else each for each in kernel]
            y = module.product(torch.empty(5, 96, dtype=torch.bfloat16), *first)
            assert (y.shape, y.dtype) == ((5, 61), torch.bfloat16)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
        with pytest.raises(UserError, match=r"need compute capability 8.0, not 7.5; use --weight-type=int8"):
            Quantized("int4", shape).load_state_dict({"weight": module.weight.new_empty(1), "kernel_scale": scale})


def test_two_integers_of_cuda_share_a_byte_as_in_pytorchs_own_tests(monkeypatch):
    """`_group_quantize_tensor` of torch.testing makes `int_data[:, ::2] << 4 | int_data[:, 1::2]` of them."""
    torch = pytest.importorskip("torch")
    from benchmarker_problems.quantization import torch as products

    given = []
    monkeypatch.setattr(torch, "_convert_weight_to_int4pack", lambda each, tiles: given.append((each, tiles)) or each)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    integers = torch.arange(32, dtype=torch.int32).remainder(16).view(1, 32)
    products._packed(integers)
    ((halves, tiles),) = given
    assert (halves.dtype, tiles) == (torch.uint8, 2)
    assert halves.tolist() == [[0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF] * 2]


def test_what_is_refused_on_gpus():
    pytest.importorskip("torch")
    from benchmarker_problems.quantization.torch import unsupported

    def is_refused(has_int8, **wanted):
        rules = unsupported(has_int8)
        return any(all(wanted.get(name) == value for name, value in rule.items()) for rule in rules)

    for precision in ("fp32", "bf16", "mixed_bf16"):
        case = {"precision": precision, "device": "cuda"}
        assert not is_refused(True, weight_type="int8", **case)
        assert is_refused(False, weight_type="int8", **case)
        assert is_refused(True, weight_type="int4", **case) == (precision == "fp32")
        assert is_refused(True, weight_type="int8", precision=precision, device="rocm")
        assert not is_refused(True, weight_type="full", **case)
        assert not is_refused(False, weight_type="int4", precision=precision, device="cpu")
