"""A check tells types apart: what computes in the next shorter type fails, and so does what leaves out one product.

Faults are planted in the data from which a workload is built: without its first element along the axis of a sum, a
factor has one product less in each sum. What runs on no CPU, tf32 for one, is the reference in emulated arithmetic.
"""

from functools import cache, partial
from importlib.util import find_spec

import msgspec
import numpy as np
import pytest

from benchmarker import PRECISIONS, Case, Data
from benchmarker.hooks import registry
from benchmarker.worker.correctness import bounds_of, relative_error, steps_of
from benchmarker.worker.draws import drawn
from benchmarker.worker.rounding import rounded

MODES = {
    "gemm": ("inference", "forward_backward"),
    "attention": ("inference", "forward_backward"),
    "conv": ("inference", "forward_backward"),
    "gpt2": ("inference", "forward_backward", "training"),
}
NEXT = {
    "fp64": ("fp32", 24),
    "fp32": ("fp16", 11),
    "tf32": ("bf16", 8),
    "fp16": ("bf16", 8),
    "mixed_fp16": ("mixed_bf16", 8),
    "fp8_e4m3": ("fp8_e5m2", 3),
    "fp8_e4m3_row": ("fp8_e5m2_row", 3),
    "fp8_e5m2": ("fp4", 2),
    "fp8_e5m2_row": ("fp4", 2),
    "mxfp8_e4m3": ("mxfp8_e5m2", 3),
    "mxfp8_e5m2": ("mxfp4", 2),
    "nvfp4": ("mxfp4", 2),
    "mxfp4": ("fp3", 1),
    **{name: ("fp32", 24) for name, types in PRECISIONS.items() if types.slices},
}
"""The next shorter precision of each, with the bits of its significands; fp16 stands for tf32, which has as many.

E2M1, which follows E5M2, has 2 (OCP Microscaling Formats Specification, 2023).
"""
FP8_BITS = 4
"""Significant bits of E4M3 (Micikevicius et al., "FP8 formats for deep learning", 2022), which follows bf16."""
SUMS = {
    "gemm": {"a": np.s_[:, 0], "dc": np.s_[:, 0]},
    "attention": {"q": np.s_[..., 0], "v": np.s_[:, 0], "d_out": np.s_[:, -1]},
    "conv": {"w": np.s_[0, 0, 0], "d_out": np.s_[0, 0, 0]},
}
"""What is left out of the inputs, by problem: of A·B and dC·Bᵀ; of Q·Kᵀ, weights·V and the sums over queries; of the
window at each position, and of the sum over positions."""
NOT_TOLD = {"h.0.attn_qkv.kernel", "h.1.mlp_proj.kernel"}
"""Layers of GPT-2 of which one product more or less changes its logits less than rounding to bf16 does.

A layer's result is added to what it is computed from, and one of 48 or 160 products is a small part of it. Gradients
tell, with backward and in training."""


@cache
def checked(name, mode, precision):
    """A problem at the size of a check: its data, what is exact, and the bounds."""
    size = registry.problem(name)().small()
    case = Case(problem=name, framework="torch", device="cpu", params={}, mode=mode, precision=precision)
    data = drawn(size, precision, 0, 3)
    steps = partial(steps_of, size, case)
    exact = steps(data)
    return size, case, data, exact, bounds_of(size, case, data, steps, exact)


@cache
def opened(framework):
    if framework == "jax":
        from benchmarker_plugins.frameworks.jax import JaxFramework

        return JaxFramework("cpu")
    hooks = registry.load([f"framework.{framework}"]).hook
    return hooks.make_framework(device="cpu", precision="fp32", threads=None, profiling="no", devices=1)


def passes(name, mode, precision, framework, data, computed_in=None):
    """Whether what a framework computes from the data, perhaps in another precision than that checked, is right."""
    size, case, _, exact, bounds = checked(name, mode, precision)
    computed_in = computed_in or precision
    case = msgspec.structs.replace(case, precision=computed_in, framework=framework)
    if framework == "emulated":
        found = steps_of(size, case, rounded(data, PRECISIONS[computed_in]))
    else:
        hooks = registry.load([f"workload.{name}.{framework}"]).hook
        built = hooks.build_workload(framework=opened(framework), problem=size, case=case, data=data)
        found = [built.outputs(built.step()) for _ in exact]
    return all(
        relative_error(np.asarray(outputs[output], np.float64), value) <= bounds[output]
        for outputs, expected in zip(found, exact, strict=True)
        for output, value in expected.items()
    )


def changed(arrays, name, change):
    return {**arrays, name: change(arrays[name].copy())}


def without(data, name, place):
    """The data without a part of one weight, or of one input in every batch."""

    def cleared(value):
        value[place] = 0
        return value

    if name in data.weights:
        return Data(changed(data.weights, name, cleared), data.batches)
    return Data(data.weights, tuple(changed(batch, name, cleared) for batch in data.batches))


def stored(data, bits):
    """The data with significands of so many bits, in fp32."""

    def all_of(arrays):
        return {name: short(value) if value.dtype.kind == "f" else value for name, value in arrays.items()}

    def short(value):
        significand, exponent = np.frexp(value)
        return np.ldexp(np.rint(significand * 2**bits), exponent - bits).astype(np.float32)

    return Data(all_of(data.weights), tuple(map(all_of, data.batches)))


def planted(name, mode, precision, framework, data):
    """The data of each fault, and the precision in which it is computed, by what it leaves out or stores."""
    if precision != "int8":
        shorter, bits = NEXT.get(precision, ("fp8", FP8_BITS))
        yield f"in {shorter}", stored(data, bits), shorter if shorter in PRECISIONS else precision
    for value, place in SUMS.get(name, {}).items():
        if mode != "inference" or not value.startswith("d"):
            yield f"without a product of {value}", without(data, value, place), precision
    kernels = [weight for weight in data.weights if weight.endswith(".kernel")]
    for weight in kernels[2:3] if framework == "jax" else kernels:  # each takes a compilation there
        yield f"without a product of {weight}", without(data, weight, 0), precision


def listed(framework, name):
    """Each mode and precision that a framework lists, of those that CPUs have; of none, all that are emulated."""
    if framework == "emulated":
        for mode in MODES[name]:
            yield from (
                (mode, precision) for precision in ("tf32", "bf16", "fp16") if name != "gpt2" or precision == "tf32"
            )
        return
    if not find_spec(framework):
        return
    support = registry.load([f"workload.{name}.{framework}"]).hook.describe_workload()
    for mode, precisions in support.precisions.items():
        if mode in MODES[name]:
            yield from ((mode, precision) for precision in precisions if precision != "tf32")


QUICK = {("forward_backward", "mixed_bf16"), ("forward_backward", "fp16")}
"""What is tried of GPT-2 on each change."""
EVERY = [
    pytest.param(
        framework,
        name,
        *way,
        marks=[pytest.mark.slow] if framework == "jax" or (name == "gpt2" and way not in QUICK) else [],
    )
    for framework in ("emulated", "numpy", "torch", "jax")
    for name in MODES
    for way in listed(framework, name)
]


@pytest.mark.parametrize(("framework", "name", "mode", "precision"), EVERY)
def test_a_shorter_type_and_a_product_too_few_are_found(framework, name, mode, precision, request):
    if framework == "jax" and PRECISIONS[precision].parameter == "fp64":
        request.getfixturevalue("x64")
    what = (name, mode, precision, framework)
    *_, data, _, _ = checked(name, mode, precision)
    assert passes(*what, data)
    passed = {fault for fault, *how in planted(*what, data) if passes(*what, *how)}
    in_noise = name == "gpt2" and mode == "inference" and PRECISIONS[precision].compute == "bf16"
    not_told = NOT_TOLD if in_noise and framework != "jax" else set()
    assert passed == {f"without a product of {weight}" for weight in not_told}
