"""The files in examples/own-code: each function is right, and those of two frameworks agree on the same inputs."""

from pathlib import Path

import numpy as np
import pytest

from benchmarker import element_error, open_bench, relative_error

EXAMPLES = Path(__file__).parents[3] / "examples" / "own-code"
SIZES = {
    "attention": {"tokens": 16, "heads": 2, "width": 8},
    "convolution": {"batch": 2, "n": 64},
    "cross_entropy": {"n": 8, "classes": 32},
    "cumulative_sum": {"n": 4, "m": 256},
    "layer_norm": {"n": 8, "m": 32},
    "rope": {"tokens": 16, "heads": 2, "width": 8},
    "segment_sum": {"n": 64, "m": 4, "segments": 8},
    "softmax": {"n": 8, "m": 32},
    "sort": {"n": 4, "m": 64},
    "top_k": {"n": 4, "m": 64, "k": 5},
}
"""A small size of each pair of files."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("softmax", "sort") else pytest.mark.slow) for name in SIZES]
)
def test_functions_are_right_and_those_of_two_frameworks_agree(name):
    data, references = None, []
    for framework, file in (("torch", f"{name}.py"), ("jax", f"{name}_jax.py")):
        path = str(EXAMPLES / file)
        for function in open_bench(path, framework, "cpu").problem.code.functions:
            bench = open_bench(path, framework, "cpu", function=function, **SIZES[name])
            data = data or bench.data(bench.problem, 2)
            workload = bench.build(bench.problem, data)
            exact = workload.exact()
            assert exact.against == "reference in fp64"
            (expected,) = exact.steps
            outputs = workload.outputs(workload.step())
            error = relative_error(outputs["result"], expected["result"])
            assert error <= exact.bounds["result"], f"{file}:{function}"
            assert element_error(outputs["result"], expected["result"]) <= exact.elements["result"], (
                f"{file}:{function}"
            )
            assert workload.verify(None) is None
            references.append(expected["result"])
    for reference in references:
        np.testing.assert_allclose(reference, references[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("framework", "name"), [("jax", "softmax_pallas"), ("torch", "softmax_triton")])
def test_kernels_are_right_where_they_are_interpreted(framework, name, monkeypatch):
    if name == "softmax_triton":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        pytest.importorskip("triton")
    path = str(EXAMPLES / f"{name}.py")
    for function in open_bench(path, framework, "cpu").problem.code.functions:
        bench = open_bench(path, framework, "cpu", function=function, n=4, m=24)
        workload = bench.build(bench.problem, bench.data(bench.problem, 2))
        exact = workload.exact()
        outputs = workload.outputs(workload.step())
        assert relative_error(outputs["result"], exact.steps[0]["result"]) <= exact.bounds["result"], function


def test_every_file_is_tried():
    stems = {path.stem.removesuffix("_jax") for path in EXAMPLES.glob("*.py")}
    assert stems == {*SIZES, "layers", "softmax_pallas", "softmax_triton"}
