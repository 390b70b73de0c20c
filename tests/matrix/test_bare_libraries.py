"""BLAS and oneDNN alone: right in every layout, in the precision that was asked for, and told apart in the record."""

import ctypes.util
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import threadpoolctl

from benchmarker import UserError, open_bench
from benchmarker.hooks import registry
from benchmarker_plugins.frameworks import blas, onednn

SHAPES = [(9, 17, 33, 1), (9, 17, 33, 2), (1, 5, 7, 3), (1, 5, 7, 1), (5, 1, 7, 1), (5, 7, 1, 1), (1, 1, 1, 1)]
"""M, N, K and the number of products; in those with a 1, a matrix may be told to be stored by rows or by columns."""
BOUNDS = {"fp64": 1e-15, "fp32": 1e-6, "bf16": 1e-2, "fp16": 1e-3, "int8": 0}


def precisions(framework):
    return framework.describe_framework().devices[0].precisions


def assert_right(bench, bound):
    """Two steps have the results of the reference."""
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    for expected in bench.problem.reference(data, bench.case.mode):
        outputs = workload.outputs(workload.step())
        assert set(outputs) == set(expected)
        for output, exact in expected.items():
            error = np.linalg.norm(outputs[output] - exact) / np.linalg.norm(exact)
            assert outputs[output].shape == exact.shape
            assert error <= bound, (bench.case, output)


@pytest.mark.parametrize("layout", [*product([False, True], repeat=2)], ids=["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("library", [blas, onednn], ids=["blas", "onednn"])
def test_products_are_those_of_numpy_in_every_layout(library, layout):
    name = library.__name__.rpartition(".")[2]
    for precision, shape in product(precisions(library), SHAPES):
        mode = "inference" if precision == "int8" else "forward_backward"
        size = dict(zip(("m", "n", "k", "batch_size"), shape, strict=True))
        size |= dict(zip(("transpose_a", "transpose_b"), layout, strict=True))
        bench = open_bench("gemm", name, "cpu", precision=precision, mode=mode, **size)
        assert_right(bench, BOUNDS[precision])


CONVOLUTIONS = [
    {"dims": 1, "image_size": 10, "stride": 3, "in_channels": 6, "out_channels": 4, "groups": 2},
    {"dims": 2, "image_size": 9, "kernel_size": 4, "stride": 2, "dilation": 2, "in_channels": 3, "out_channels": 5},
    {"dims": 2, "image_size": 7, "padding": 0, "groups": 4, "in_channels": 4, "out_channels": 8},
    {"dims": 2, "image_size": 9, "in_channels": 16, "out_channels": 32},
    {"dims": 3, "image_size": 5, "padding": 2, "stride": 2, "in_channels": 2, "out_channels": 3},
]
"""With each number of dimensions; groups, depthwise, and sizes for which oneDNN stores channels in blocks of 16."""


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_of_onednn_are_those_of_the_reference(kind, layout):
    for precision in {*precisions(onednn)} - {"int8"}:
        for mode in ("inference", "forward_backward"):
            bench = open_bench(
                "conv", "onednn", "cpu", precision=precision, mode=mode, layout=layout, batch_size=2, **kind
            )
            assert_right(bench, BOUNDS[precision])


def test_an_lstm_of_onednn_is_that_of_the_reference():
    sizes = {"layers": 3, "hidden_size": 12, "input_size": 10, "seq_len": 5, "batch_size": 2}
    assert_right(open_bench("lstm", "onednn", "cpu", **sizes), BOUNDS["fp32"])


@pytest.mark.parametrize(("problem", "name"), [("gemm", "blas"), ("gemm", "onednn"), ("conv", "onednn")])
def test_all_steps_write_to_the_same_arrays(problem, name):
    """Memory taken anew would be timed too. One array for each set of inputs would be cold, unlike in frameworks."""
    bench = open_bench(problem, name, "cpu", mode="forward_backward")
    small = bench.problem.small()
    step = bench.build(small, bench.data(small, 2)).step
    first, second = ({key: value.ctypes.data for key, value in step().items()} for _ in range(2))
    assert first == second


def scipys_blas():
    """The file of the BLAS that SciPy is linked to and NumPy is not, and what is known of it."""
    import scipy.linalg.blas

    assert scipy.linalg.blas.dgemm
    known = threadpoolctl.threadpool_info()
    own = blas.Library(None).controller.filepath
    others = [each for each in known if each["internal_api"] == "openblas" and each["filepath"] != own]
    if not others:
        pytest.skip("NumPy and SciPy share their BLAS here")
    return others[0]


def test_the_blas_is_that_of_numpy_or_the_one_of_a_file_and_the_record_tells_which(monkeypatch):
    """SciPy's has integers of 32 bits, NumPy's of 64, with other names."""
    other = scipys_blas()
    told = []
    for file in (None, other["filepath"]):
        if file:
            monkeypatch.setenv(blas.VARIABLE, file)
        bench = open_bench("gemm", "blas", "cpu", precision="fp64", m=5, n=6, k=7)
        data = bench.data(bench.problem, 1)
        workload = bench.build(bench.problem, data)
        expected = data.batches[0]["a"] @ data.batches[0]["b"]
        np.testing.assert_allclose(workload.outputs(workload.step())["c"], expected, rtol=1e-13, atol=1e-13)
        told.append(bench.describe())
    own, given = told
    assert given.libraries["blas"].split()[:2] == ["openblas", other["version"]] != own.libraries["blas"].split()[:2]
    assert f"OpenBLAS {other['version']} " in given.types.settings["openblas_get_config"]
    assert "USE64BITINT" not in given.types.settings["openblas_get_config"]
    assert given.device.name == f"CPU ({given.libraries['blas']})"
    assert (own.variables.get(blas.VARIABLE), given.variables[blas.VARIABLE]) == (None, "<path>")


def test_a_blas_of_an_unknown_kind_is_called_after_its_file_and_its_threads_are_not_known(monkeypatch):
    file = blas.Library(None).controller.filepath
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: SimpleNamespace(lib_controllers=[]))
    library = blas.Library(file)
    assert (library.name, library.version) == (Path(file).name, "unknown")
    assert blas.BlasFramework(library).threads() is None


@pytest.mark.parametrize(
    ("library", "variable", "wrong"),
    [(blas, "BENCHMARKER_BLAS", "has no cblas_dgemm"), (onednn, "BENCHMARKER_ONEDNN", "is not oneDNN of version 3")],
    ids=["blas", "onednn"],
)
def test_a_file_that_is_none_or_another_library_is_refused_in_one_line_with_the_remedy(library, variable, wrong):
    none, other = "/none/lib.so", ctypes.util.find_library("m")
    for file, why in ((none, "/none/lib.so: cannot open shared object file"), (other, wrong)):
        with pytest.raises(UserError, match=why) as refused:
            library.Library(file)
        assert variable in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_missing_onednn_is_one_line_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(onednn, "_FILE", "libmissing.so.3")
    with pytest.raises(
        UserError, match=r"^cannot load oneDNN: libmissing.so.3: .*; pip install onednn-cpu-gomp, or "
    ) as refused:
        onednn.Library(None)
    assert "\n" not in str(refused.value)


def test_a_missing_onednn_is_no_framework_that_can_be_used(monkeypatch):
    assert registry.trouble(registry.find("framework.onednn")) is None
    assert "onednn" in registry.available("gemm")
    monkeypatch.setattr(onednn, "_FILE", "libmissing.so.3")
    assert registry.trouble(registry.find("framework.onednn")).startswith("framework.onednn: cannot load oneDNN: ")
    assert "onednn" not in registry.available("gemm")
    monkeypatch.setenv("BENCHMARKER_ONEDNN", ctypes.util.find_library("m"))
    assert "is not oneDNN of version 3" in registry.trouble(registry.find("framework.onednn"))


def told_with(variables):
    """The precisions and the settings of oneDNN in a process of its own, and the error of a product in fp32."""
    code = """
import json, numpy as np
from benchmarker_plugins.frameworks import onednn
framework = onednn.make_framework(threads=1)
a = np.random.default_rng(0).standard_normal((64, 64), np.float32)
c = np.empty_like(a)
framework.matmul(a, a, c)()
exact = a.astype(float) @ a
error = np.linalg.norm(c - exact) / np.linalg.norm(exact)
print(json.dumps([framework.precisions(), framework.settings(), error]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fp32_of_onednn_is_fp32_whatever_a_variable_allows():
    _, settings, error = told_with({"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"})
    assert settings == {"fpmath_mode": "strict"}
    assert error < 1e-6


def test_onednn_has_the_precisions_of_the_processor():
    """Without VNNI its sums of int8 saturate: it would multiply, but wrongly."""
    assert told_with({"ONEDNN_MAX_CPU_ISA": "AVX2"})[0] == ["fp32"]


def test_onednn_tells_what_it_cannot_do():
    framework = onednn.make_framework(threads=None)
    a, b = np.ones((3, 4), np.float32), np.ones((5, 6), np.float32)
    with pytest.raises(RuntimeError, match="status 2"):
        framework.matmul(a, b, np.ones((3, 6), np.float32))
    assert framework.is_finite({"c": np.ones(2, ml_dtypes.bfloat16)})
    assert not framework.is_finite({"c": np.array([1, np.nan], ml_dtypes.bfloat16)})
