"""Runtimes of exported models: the precision and the threads that they compute with, and profiles by node."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from support.checks import ability_of, checked

from benchmarker import Bench, Case, Data
from benchmarker.api.case import CaseRequest
from benchmarker.hooks import parameters, registry
from benchmarker.planning.cases import make_case, supported_precisions
from benchmarker.traces.ingest import Expected, ingest
from benchmarker.worker.correctness import check
from benchmarker_plugins.frameworks.exporting import _Tree

GPT2 = {"n_layer": 2, "d_model": 24, "n_head": 3, "vocab_size": 31, "seq_len": 8, "batch_size": 2}
VIT = {"n_layer": 2, "d_model": 24, "n_head": 3, "patch_size": 2, "image_size": 8, "classes": 10, "batch_size": 4}


def case_of(framework: str, precision: str = "fp32", problem: str = "gpt2", **options) -> Case:
    asked = CaseRequest(problem=problem, precision=precision, device="cpu", params=options or GPT2, threads=1)
    return make_case(asked, registry.problem(problem), framework, ability_of(problem, framework))


def test_openvino_computes_in_bf16_only_when_asked():
    """On processors with bf16, it would do so in fp32 too if nothing were said."""
    errors = {}
    for precision in ("fp32", "mixed_bf16"):
        if precision not in ability_of("gpt2", "openvino").info.devices[0].precisions:
            pytest.skip("this processor has no bf16")
        checks, _ = checked(case_of("openvino", precision), ["inference"])
        assert checks["inference"].ok
        errors[precision] = checks["inference"].error
    assert errors["fp32"] < 1e-6 < 1e-4 < errors["mixed_bf16"]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "options"), [("gpt2", GPT2), ("vit", VIT)])
def test_products_of_int8_are_within_the_error_of_quantising_and_those_of_int4_are_not(problem, options):
    if "int8_dynamic" not in ability_of(problem, "onnxruntime").info.devices[0].precisions:
        pytest.skip("this processor has no products of int8 that do not saturate")
    bench = Bench(case_of("onnxruntime", "int8_dynamic", problem, **options))
    data = bench.data(bench.problem, 1)
    right = check(bench.build(bench.problem, data), data, bench.problem, bench.case)
    assert right.ok
    assert right.error > 1e-3
    in_int4 = {
        name: quantized_to(7, value) if name.endswith(".kernel") else value for name, value in data.weights.items()
    }
    wrong = check(bench.build(bench.problem, Data(in_int4, data.batches)), data, bench.problem, bench.case)
    assert not wrong.ok


def test_quantised_kernels_are_counted_as_bytes_and_their_scales_as_fp32():
    problem = parameters.convert(registry.problem("gpt2"), case_of("onnxruntime").params)
    outputs = 2 * (3 * 24 + 24 + 4 * 24 + 24)
    kernels = 2 * (24 * 3 * 24 + 24 * 24 + 2 * 24 * 4 * 24)
    assert problem.weight_bytes("int8_dynamic") == problem.weight_bytes("fp32") - 3 * kernels + 4 * outputs
    head, quantized_head = (problem.parts("inference", precision)["lm_head"] for precision in ("fp32", "int8_dynamic"))
    assert head.bytes - quantized_head.bytes == 3 * 31 * 24 - 4 * 31
    assert head.flops == quantized_head.flops


def quantized_to(largest, kernel):
    scale = np.abs(kernel).max() / largest
    return (np.rint(kernel / scale) * scale).astype(np.float32)


CONVOLUTIONS = [
    {"dims": 1, "image_size": 10, "stride": 3, "in_channels": 6, "out_channels": 4, "groups": 2},
    {"dims": 2, "image_size": 9, "kernel_size": 4, "stride": 2, "dilation": 2, "in_channels": 3, "out_channels": 5},
    {"dims": 2, "image_size": 7, "padding": 0, "groups": 4, "in_channels": 4, "out_channels": 8},
    {"dims": 3, "image_size": 5, "padding": 2, "stride": 2, "in_channels": 2, "out_channels": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions_have_their_channels_where_the_layout_says(framework, layout, sizes):
    """So a runtime copies nothing from one order to another but within its model, and the result is as PyTorch's."""
    ability = ability_of("conv", framework)
    for precision in supported_precisions(ability.support, ability.info.devices[0], "inference"):
        bench = Bench(case_of(framework, precision, "conv", layout=layout, batch_size=2, **sizes))
        data = bench.data(bench.problem, 1)
        workload = bench.build(bench.problem, data)
        assert check(workload, data, bench.problem, bench.case).ok
        (out,) = workload.step()
        channels = 1 if layout == "channels_first" else out.ndim - 1
        assert out.movedim(1, channels).is_contiguous()


@pytest.mark.parametrize("framework", ["onnxruntime", "openvino"])
def test_products_keep_their_reshapes_where_all_their_sizes_are_alike(framework):
    """Without them the shapes broadcast too, to the same shape with other axes."""
    case = case_of(framework, problem="attention", impl="matmul", batch_size=2, heads=4, kv_heads=2, seq_len=6)
    bench = Bench(case)
    data = bench.data(bench.problem, 1)
    assert check(bench.build(bench.problem, data), data, bench.problem, bench.case).ok


def test_inputs_are_given_as_they_lie_in_memory():
    tree = _Tree.of((torch.zeros(2, 3, 4, 5).permute(0, 3, 1, 2), {"b": torch.zeros(3, 1, 2)}))
    dense = tree.dense((torch.arange(120).view(2, 3, 4, 5).permute(0, 3, 1, 2), {"b": torch.ones(3, 1, 2)}))
    assert [tuple(each.shape) for each in dense] == [(2, 3, 4, 5), (3, 1, 2)]
    assert all(each.is_contiguous() for each in dense)
    first, rest = tree.value(dense)
    assert first.shape == (2, 5, 3, 4)
    assert torch.equal(first, torch.arange(120).view(2, 3, 4, 5).permute(0, 3, 1, 2))
    assert torch.equal(rest["b"], torch.ones(3, 1, 2))


def profiled(case, steps, folder):
    """The profile of so many steps, after two; the scopes of a step, and the mean time of a step, ns."""
    problem = parameters.convert(registry.problem(case.problem), case.params)
    hooks = registry.load([f"framework.{case.framework}", f"workload.{case.problem}.{case.framework}"]).hook
    framework = hooks.make_framework(device="cpu", precision=case.precision, threads=1, profiling="yes", devices=1)
    data = problem.data("fp32", np.random.default_rng(0), 2)
    workload = hooks.build_workload(framework=framework, case=case, problem=problem, data=data)
    for _ in range(2):
        workload.step()
    times = []
    with framework.profile(folder) as mark:
        for number in range(steps):
            with mark(number):
                begin = time.perf_counter_ns()
                workload.step()
                times.append(time.perf_counter_ns() - begin)
    expected = problem.scopes("inference")
    return ingest(folder / "trace.json", Expected(scopes=expected)), expected, sum(times) / steps


DLRM = {"tables": 3, "rows": 20, "embedding_dim": 6, "bottom_mlp": "9", "top_mlp": "11-7", "batch_size": 5}
DIT = {"n_layer": 1, "d_model": 12, "n_head": 3, "patch_size": 2, "image_size": 48, "classes": 5}
RESNET = {"size": "18", "stages": 1, "stage_blocks": 1, "width": 4, "image_size": 16, "batch_size": 2}


@pytest.mark.parametrize(("problem", "sizes"), [("dlrm", DLRM), ("dit", DIT), ("resnet", RESNET)])
def test_what_the_exporter_rewrites_stays_in_its_scope(problem, sizes, tmp_path):
    """That is a sum of bags, which becomes a loop, shifts after LayerNorm, and a convolution with its normalisation."""
    found, expected, _ = profiled(case_of("onnxruntime", problem=problem, **sizes), 2, tmp_path)
    may_be_fused = {"stem_conv", "conv1"}  # each with the ReLU after it
    assert expected.keys() - may_be_fused <= {scope.scope for scope in found.scopes if scope.scope} <= expected.keys()
    assert found.trace.outside_ns < 0.1 * found.trace.busy_ns
    if problem == "dlrm":
        assert {kernel.scope for kernel in found.kernels() if kernel.name == "onnx::Loop"} == {"embed"}


def test_the_mean_step_of_openvino_is_profiled_by_node_with_the_scopes_of_the_model(tmp_path):
    """The first execution of a node, which takes longer by its preparation, is before the profile."""
    sizes = {**GPT2, "d_model": 192, "seq_len": 128, "vocab_size": 999, "impl": "matmul"}
    found, expected, step_ns = profiled(case_of("openvino", **sizes), 5, tmp_path)
    assert found.trace.steps == 5
    assert found.trace.step_ns == [pytest.approx(step_ns, rel=0.05, abs=20_000)] * 5
    entered = {scope.scope: scope.occurrences for scope in found.scopes if scope.scope}
    assert {"ln_1", "attn_softmax", "mlp_proj"} <= entered.keys() <= expected.keys()
    times = {scope.scope: scope.root_ns for scope in found.scopes}
    assert times["attn_qkv"] < 5 * times["mlp_fc"]
    products = {kernel.scope for kernel in found.kernels() if kernel.category == "gemm"}
    assert products == {"attn_qkv", "attn_q_k", "attn_att_v", "attn_proj", "mlp_fc", "mlp_proj", "lm_head"}
    assert {kernel.scope for kernel in found.kernels() if kernel.category == "normalisation"} <= {
        "ln_1",
        "ln_2",
        "ln_f",
    }


def test_a_step_is_profiled_by_node_with_the_scopes_of_the_model(tmp_path):
    found, expected, _ = profiled(case_of("onnxruntime"), 3, tmp_path)
    assert found.trace.steps == 3
    assert not found.trace.missing
    assert {scope.scope: scope.occurrences for scope in found.scopes if scope.scope} == {
        name: 3 * count for name, count in expected.items()
    }
    products = {kernel.scope for kernel in found.kernels() if kernel.category == "gemm"}
    assert products >= {"attn_qkv", "attn_q_k", "attn_att_v", "attn_proj", "mlp_fc", "mlp_proj", "lm_head"}


def test_openvino_sends_no_statistics_of_its_use():
    """Otherwise its import starts a process, which connects to a host of the vendor's."""
    program = (
        "import os, sys, benchmarker_plugins.frameworks.openvino\n"
        "assert not [name for name in sys.modules if name.startswith('openvino_telemetry.')]\n"
        "assert 'openvino.tools.ovc.telemetry_stub' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_versions_of_pytorch_that_cannot_annotate_a_graph_measure_all_else():
    """Those before 2.9 have neither of the two names that an export needs."""
    program = (
        "import torch, torch.fx.traceback\n"
        "del torch.fx.traceback.annotate, torch.compiler.is_exporting\n"
        "from benchmarker_plugins.frameworks.torch import describe_framework, scope\n"
        "with scope('part'): assert describe_framework().devices"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("framework", ["onnxruntime", "openvino"])
def test_threads_are_those_that_are_asked_for(framework):
    hooks = registry.load([f"framework.{framework}"]).hook
    for threads in (1, 2):
        made = hooks.make_framework(device="cpu", precision="fp32", threads=threads, profiling="no", devices=1)
        assert made.threads() == threads
