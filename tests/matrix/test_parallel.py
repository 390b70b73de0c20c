"""Training on several devices: the losses of three steps are those of the one-device problem with the same batch.

What the devices exchange and hold is compared with the formula: by the calls of PyTorch, and by the program of XLA.
"""

import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from support.ranks import on_devices

from benchmarker import Case, Data, UserError
from benchmarker.hooks import registry
from benchmarker.worker.correctness import check
from benchmarker_problems import parallel
from benchmarker_problems.gpt2 import Gpt2
from benchmarker_problems.layers import size_of
from benchmarker_problems.llama import Llama
from benchmarker_problems.parallel import STRATEGIES

SIZE = ("--n-layer=1", "--d-model=32", "--vocab-size=53", "--seq-len=8", "--batch-size=8")
HEADS = {"gpt2": ("--n-head=4",), "llama": ("--n-head=8", "--n-kv-head=4", "--d-ff=40")}
PARAMS = Gpt2(n_layer=2, d_model=32, n_head=4, vocab_size=64, seq_len=8, batch_size=4)
LLAMA = Llama(n_layer=2, d_model=32, n_head=4, n_kv_head=2, d_ff=48, vocab_size=64, seq_len=8, batch_size=4)
"""Everything that is divided is a multiple of the number of devices."""
BYTES = 4
"""Of an element of fp32."""
PROBLEMS = {name: registry.problem(name) for name in ("gpt2", "llama")}
PROBLEM = PROBLEMS["gpt2"]
NAMES = {Gpt2: "gpt2", Llama: "llama"}


def trained(cli, framework, devices, way, precision, problem="gpt2"):
    words = (f"--framework={framework}", f"--devices={devices}", f"--precision={precision}", "--device=cpu")
    options = (*SIZE, *HEADS[problem], f"--parallel={way}", "--blocks=3", "--power=none", "--json")
    done = cli("run", f"--problem={problem}", "--mode=training", *words, *options)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "way", "precision", "problem"),
    [
        ("jax", "dp", "fp32", "gpt2"),
        ("jax", "dp", "mixed_fp16", "gpt2"),
        ("torch", "dp", "fp32", "gpt2"),
        ("torch", "dp", "mixed_fp16", "gpt2"),
        ("torch", "fsdp", "fp32", "gpt2"),
        ("torch", "fsdp", "fp32", "llama"),
        ("torch", "tp", "fp32", "gpt2"),
        ("torch", "tp", "mixed_bf16", "llama"),
    ],
)
def test_each_device_works_without_communication_too(cli, framework, way, precision, problem):
    """A rank that is alone would wait without end if it still exchanged anything."""
    record = trained(cli, framework, 2, way, precision, problem)
    local = record["local"]
    assert sorted(local["alone_device"]) == [0, 1]
    assert {len(each) for each in local["together_ns"]} == {2}
    assert {len(each) for each in local["synchronised_ns"]} == {record["case"]["ranks"]}
    assert 0 < record["metrics"]["straggler_score"]["value"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fsdp", "tp"])
def test_jax_has_no_step_without_communication_where_it_writes_out_what_is_exchanged(cli, way):
    record = trained(cli, "jax", 2, way, "fp32")
    assert (record["status"], record["local"]) == ("ok", None)
    assert record["reasons"]["local"] == f"gpt2 has no step without communication in --parallel={way}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "devices"), [("dp", 1), ("fsdp", 4)]
)  # on one device, all strategies are the same case
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_run_on_other_numbers_of_devices_is_recorded(cli, framework, way, devices):
    record = trained(cli, framework, devices, way, "fp64")
    assert record["check"]["error"] <= 1e-12
    assert record["cost"]["samples"] == 8
    assert record["case"]["ranks"] == {"jax": 1, "torch": devices}[framework]
    assert record["case"]["parallel"] == ("none" if devices == 1 else way)


def checks(framework, name, devices, cases):
    """The check of each case, a problem with a strategy and a precision, by one rank."""
    found = []
    for problem, way, precision in cases:
        params = ({"gpt2": PARAMS, "llama": LLAMA}[problem]).on(devices, way).small()
        workload, made = built(framework, name, params, way, devices, precision)
        found.append(check(workload, *made))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_losses_are_those_of_one_device_in_fp64(framework, devices):
    cases = [(problem, way, "fp64") for problem in PROBLEMS for way in STRATEGIES if (problem, devices) != ("llama", 4)]
    for of_rank in on_devices(framework, devices, "fp64", checks, framework, devices, cases):
        for case, found in zip(cases, of_rank, strict=True):
            assert found.error <= 1e-12, case


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_losses_are_right_in_other_precisions(framework):
    """The tests of steps without communication have fp32; PyTorch's tp in mixed_fp16 is refused, see below."""
    cases = [("gpt2", way, precision) for way in STRATEGIES for precision in ("mixed_bf16", "mixed_fp16")]
    cases = [case for case in cases if (framework, *case[1:]) != ("torch", "tp", "mixed_fp16")]
    for of_rank in on_devices(framework, 2, "fp32", checks, framework, 2, cases):
        for case, found in zip(cases, of_rank, strict=True):
            assert found.ok, (case, found)


def test_the_check_has_a_sample_and_a_head_for_every_device():
    """With equal parts of one sample each, a rank that trains on another's part would not be seen."""
    small = {way: Gpt2().on(3, way).small() for way in STRATEGIES}
    assert [(each.batch_size, each.n_head) for each in small.values()] == [(12, 3), (12, 3), (4, 3)]
    assert Gpt2().small().batch_size == 4
    for each in small.values():
        each.refuse("training")


@pytest.mark.parametrize(
    ("mode", "way", "params", "message"),
    [
        ("inference", "dp", {"batch_size": 4}, "several devices train; give --mode=training, or omit --devices=2"),
        ("training", "dp", {"batch_size": 3}, "--batch-size=3 is not a multiple of --devices=2; for example 4"),
        (
            "training",
            "fsdp",
            {"batch_size": 3},
            "--batch-size=3 is not a multiple of --devices=2, by which --parallel=fsdp divides it; for example 4",
        ),
        (
            "training",
            "fsdp",
            {"batch_size": 2, "d_model": 15, "n_head": 3},
            "--d-model=15 is not a multiple of --devices=2, by which --parallel=fsdp divides it; for example 16",
        ),
        (
            "training",
            "tp",
            {"d_model": 48, "n_head": 3},
            "--n-head=3 is not a multiple of --devices=2, by which --parallel=tp divides it; for example 4",
        ),
        ("training", "dp", {"batch_size": 4, "microbatches": 2}, "--microbatches=2 cannot be used with --devices=2"),
    ],
)
def test_what_cannot_be_divided_is_refused(mode, way, params, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        Gpt2(**params).on(2, way).refuse(mode)
    if "microbatches" not in params:
        Gpt2(**params).refuse(mode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compile",), "--compile cannot be used with --devices=2; omit one of them"),
        (
            ("--parallel=tp", "--precision=mixed_fp16"),
            "gpt2 in torch does not support --parallel=tp with --precision=mixed_fp16",
        ),
    ],
)
def test_what_several_devices_do_not_support_is_refused(cli, options, message):
    words = ("--framework=torch", "--problem=gpt2", "--mode=training", "--devices=2", "--device=cpu", "--batch-size=2")
    done = cli("run", *words, *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_exchanged_bytes_are_those_of_the_literature():
    """ZeRO (Rajbhandari et al., 2020, section 7), and Megatron-LM (Korthikanti et al., 2022, section 4.2).

    With Ψ weights, data parallel training moves 2Ψ; with divided weights 3Ψ, but for those that are kept. Tensor
    parallel training sums b·s·h numbers twice forward and twice backward in each layer.
    """
    small = Gpt2(batch_size=8, seq_len=1024)
    weights = 124_439_808
    (dp,) = small.on(4, "dp").collectives("training", "fp32")
    assert (dp.op, dp.count, dp.bytes) == ("all_reduce", 1, 4 * weights)
    gather, scatter = small.on(4, "fsdp").collectives("training", "fp32")
    kept = 768 * (50257 + 1024 + 2)
    assert (gather.op, gather.count, gather.bytes) == ("all_gather", 25, 4 * (2 * weights - kept))
    assert (scatter.op, scatter.count, scatter.bytes) == ("reduce_scatter", 13, 4 * weights)
    (tp,) = small.on(4, "tp").collectives("training", "mixed_bf16")
    assert (tp.op, tp.count, tp.bytes) == ("all_reduce", 48, 48 * 8 * 1024 * 768 * 2)
    assert small.on(2, "none").collectives("training", "fp32") == ()
    assert LLAMA.on(2, "tp").collectives("inference", "fp32") == ()


def built(framework, name, params, way, devices, precision="fp32"):
    """The workload, and what else its check takes."""
    what = NAMES[type(params)]
    params = params.on(devices, way)
    fields = {"problem": what, "framework": name, "device": "cpu", "precision": precision, "mode": "training"}
    case = Case(**fields, params={}, devices=devices, parallel=way)
    data = params.data(precision, np.random.default_rng(0), 3)
    hooks = registry.load([f"workload.{what}.{name}"]).hook
    return hooks.build_workload(framework=framework, problem=params, case=case, data=data), (
        data,
        params,
        case,
    )


def sums(calls):
    """The count and the bytes of each operation, as the formula has them."""
    found = defaultdict(lambda: (0, 0))
    for op, size in calls:
        found[op] = found[op][0] + 1, found[op][1] + size
    return dict(found)


def expected(params, way, devices, precision="fp32"):
    collectives = params.on(devices, way).collectives("training", precision)
    return {each.op: (each.count, each.bytes) for each in collectives}


def torch_step(framework, params, way, devices, precision="fp32"):
    """What a rank calls in a step, the bytes of weights and optimizer state that it holds, and the FLOPs it repeats."""
    import torch
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    ops = {
        "c10d::allreduce_": "all_reduce",
        "_c10d_functional::all_reduce": "all_reduce",
        "c10d::_allgather_base_": "all_gather",
        "c10d::_reduce_scatter_base_": "reduce_scatter",
    }
    calls = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if DTensor in types:
                return NotImplemented
            name = func._schema.name
            if "c10d" in name and not name.endswith(("wait_tensor", "_wrap_tensor_autograd")):
                tensors = [each for each in torch.utils._pytree.tree_leaves(args) if isinstance(each, torch.Tensor)]
                calls.append((ops.get(name, name), max(each.nbytes for each in tensors)))
            return func(*args, **(kwargs or {}))

    made = []
    adamw = torch.optim.AdamW

    class Kept(adamw):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    torch.optim.AdamW = Kept
    workload, _ = built(framework, "torch", params, way, devices, precision)
    workload.step()
    workload.step()  # here DistributedDataParallel forms its buckets anew, in the order of the gradients
    with Calls():
        workload.step()

    def held(value):
        local = value.to_local() if isinstance(value, DTensor) else value
        return local.untyped_storage().nbytes()

    (optimizer,) = made
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    moments = [each for state in optimizer.state.values() for each in state.values() if each.ndim]
    return calls, sum(map(held, weights)), sum(map(held, moments)), workload.recomputed_flops


def divided_bytes(params, way, devices):
    """The bytes of the weights that each device has, by their shapes."""
    shapes = params.weight_shapes()
    whole = size_of(shapes) * BYTES
    if way == "dp":
        return whole
    if way == "fsdp":
        return whole // devices
    columns, rows = ("attn_qkv.kernel", "attn_qkv.bias", "mlp_fc.kernel", "mlp_fc.bias"), ("_proj.kernel",)
    divided = sum(math.prod(shape) for name, shape in shapes.items() if name.endswith((*columns, *rows))) * BYTES
    return whole - divided + divided // devices


DIVIDED = {
    2: [
        *((PARAMS, way) for way in STRATEGIES),
        *((replace(PARAMS, recompute=True), way) for way in ("fsdp", "tp")),
        *((LLAMA, way) for way in ("fsdp", "tp")),
    ],
    4: [(PARAMS, "fsdp")],
}


def torch_steps(framework, cases, devices):
    """What `torch_step` gives for each case, on the same ranks."""
    return [torch_step(framework, params, way, devices) for params, way in cases]


@pytest.mark.slow
@pytest.mark.parametrize("devices", DIVIDED)
def test_pytorch_calls_and_holds_what_the_formula_says(devices):
    cases = DIVIDED[devices]
    for steps in on_devices("torch", devices, "fp32", torch_steps, cases, devices):
        for (params, way), (calls, weights, moments, flops) in zip(cases, steps, strict=True):
            assert sums(calls) == expected(params, way, devices)
            assert weights == divided_bytes(params, way, devices)
            assert moments == 2 * weights
            if isinstance(params, Gpt2):
                assert flops * devices == params.recomputed_flops(scores=False)


@pytest.mark.slow
def test_pytorch_pads_weights_whose_first_axis_it_cannot_divide():
    odd = replace(PARAMS, vocab_size=63)
    row = odd.d_model * BYTES
    for calls, *_ in on_devices("torch", 2, "fp32", torch_step, odd, "fsdp", 2):
        found, formula = sums(calls), expected(odd, "fsdp", 2)
        assert found == {op: (count, size + row) for op, (count, size) in formula.items()}


@pytest.mark.slow
def test_pytorch_sums_gradients_in_fp32_in_mixed_precision():
    for calls, *_ in on_devices("torch", 2, "mixed_bf16", torch_step, PARAMS, "tp", 2, "mixed_bf16"):
        count, size = expected(PARAMS, "tp", 2, "mixed_bf16")["all_reduce"]
        assert sums(calls) == {"all_reduce": (count, size // 2 + size)}


def jax_step(framework, params, way, devices):
    """How often a step asks for each collective, those of the program that XLA compiles, and what each device holds."""
    import jax

    calls, jit = [], jax.jit

    def keeping(function, **options):
        made = jit(function, **options)

        def call(*args, **named):
            lowered = made.lower(*args, **named)
            calls.append((made, lowered, made(*args, **named)))
            return calls[-1][-1]

        return call

    jax.jit = keeping
    workload, _ = built(framework, "jax", params, way, devices)
    workload.step()
    workload.step()
    made, lowered, (state, _) = calls[-1]
    assert made._cache_size() == 1, "the second step was compiled again"
    asked = Counter(re.findall(r"stablehlo\.(all_reduce|all_gather|reduce_scatter)", lowered.as_text()))
    held = Counter()
    for array in jax.tree.leaves(state):
        for shard in array.addressable_shards:
            held[shard.device.id] += shard.data.nbytes
    return dict(asked), list(exchanges(lowered.compile().as_text(), devices)), list(held.values())


def exchanges(program, devices):
    """The collectives of a compiled program, and the bytes of the larger array of each: its result, or its input."""
    for line in program.splitlines():
        found = re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(", line)
        if found:
            shapes = re.findall(r"f32\[([\d,]*)\]", found[1])
            elements = sum(math.prod(map(int, filter(None, shape.split(",")))) for shape in shapes)
            yield (
                found[2].replace("-", "_"),
                elements * BYTES * (devices if found[2] == "reduce-scatter" else 1),
            )


LOSS = BYTES
"""What JAX exchanges besides: the loss of the whole batch."""
COUNTER = 4
"""What the optimizer holds besides: how many steps it has taken."""


@pytest.mark.slow
def test_jax_exchanges_and_holds_what_the_formula_says_if_data_parallel():
    """XLA combines all sums. It has two of the tied embedding's gradients, and one of the positions that are used."""
    ((_, calls, held),) = on_devices("jax", 2, "fp32", jax_step, PARAMS, "dp", 2)
    (of_dp,) = PARAMS.on(2, "dp").collectives("training", "fp32")
    embedding, unused = PARAMS.vocab_size * PARAMS.d_model, (PARAMS.positions - PARAMS.seq_len) * PARAMS.d_model
    assert sums(calls) == {"all_reduce": (1, of_dp.bytes + (embedding - unused) * BYTES + LOSS)}
    assert held == [3 * divided_bytes(PARAMS, "dp", 2) + COUNTER] * 2


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_jax_exchanges_and_holds_what_the_formula_says_if_fully_sharded(devices):
    """Each weight is exchanged for itself. On a CPU, XLA merges the second gathering of a block with the first."""
    ((asked, calls, held),) = on_devices("jax", devices, "fp32", jax_step, PARAMS, "fsdp", devices)
    shapes = PARAMS.weight_shapes()
    again = [name for name in shapes if name.startswith("h.") and not name.endswith(".bias")]
    assert asked == {"all_gather": len(shapes) + len(again), "reduce_scatter": len(shapes), "all_reduce": 1}
    whole = size_of(shapes) * BYTES
    assert sums(calls) == {
        "all_gather": (len(shapes), whole),
        "reduce_scatter": (len(shapes), whole),
        "all_reduce": (1, LOSS),
    }
    assert held == [3 * divided_bytes(PARAMS, "fsdp", devices) + COUNTER] * devices


@pytest.mark.slow
@pytest.mark.parametrize("params", [PARAMS, replace(PARAMS, recompute=True), LLAMA])
def test_jax_exchanges_and_holds_what_the_formula_says_if_tensor_parallel(params):
    """XLA combines the sum of a block that is computed again with another."""
    ((asked, calls, held),) = on_devices("jax", 2, "fp32", jax_step, params, "tp", 2)
    count, size = expected(params, "tp", 2)["all_reduce"]
    assert asked == {"all_reduce": count}
    assert sums(calls) == {"all_reduce": (expected(replace(params, recompute=False), "tp", 2)["all_reduce"][0], size)}
    assert held == [3 * divided_bytes(params, "tp", 2) + COUNTER] * 2


def wrongly_divided(framework, name, params, devices):
    """The check of `tp` with queries, keys and values divided as if they were one result."""
    import_module(f"benchmarker_problems.generation.{name}").by_device = lambda data, *_: data
    workload, made = built(framework, name, params.on(devices, "tp").small(), "tp", devices)
    return check(workload, *made)


@pytest.mark.slow
@pytest.mark.parametrize("params", [PARAMS, LLAMA])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_check_finds_heads_that_are_divided_wrongly(framework, params):
    """It runs, and is wrong: each device attends with queries, keys and values that do not belong together."""
    for found in on_devices(framework, 2, "fp32", wrongly_divided, framework, params, 2):
        assert not found.ok
        assert found.error > 10 * found.bound


def test_equal_parts_of_a_fused_layer_have_a_share_of_every_result():
    case = Case(problem="gpt2", framework="torch", device="cpu", params={}, devices=2, parallel="tp")
    weights = {"h.0.attn_qkv.bias": np.array([1, 2, 3, 4, 5, 6, 7, 8]), "h.0.mlp_fc.bias": np.arange(4)}
    fused = {"attn_qkv": [4, 2, 2]}
    found = parallel.by_device(Data(weights, ()), fused, case).weights
    assert found["h.0.attn_qkv.bias"].tolist() == [1, 2, 5, 7, 3, 4, 6, 8]
    assert found["h.0.mlp_fc.bias"].tolist() == [0, 1, 2, 3]
    gradient = {"d_h.0.attn_qkv.bias": found["h.0.attn_qkv.bias"]}
    assert parallel.in_order(gradient, fused, case)["d_h.0.attn_qkv.bias"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_weak_scaling_gives_each_device_the_batch_of_one(name):
    problem = registry.problem(name)
    params = problem(batch_size=3, n_layer=2)
    grown = params.on(4, "dp").grown()
    assert (grown.batch_size, grown.n_layer) == (12, 2)
    costs = [each.cost("training", "fp32") for each in (params, grown)]
    assert costs[1].samples == 4 * costs[0].samples
    assert costs[1].flops == 4 * costs[0].flops
