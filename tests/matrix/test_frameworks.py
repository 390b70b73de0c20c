"""Each framework, opened in a process of its own, does what it was told."""

import json
import subprocess
import sys

import pytest

from benchmarker.hooks import registry

FRAMEWORKS = [plugin.name for plugin in registry.registered("framework").values()]
ARRAYS = [
    ("jax", "__import__('jax').numpy.array"),
    ("torch", "__import__('torch').tensor"),
    ("numpy", "__import__('numpy').array"),
]


def opened(framework, precision, code, threads=None):
    """What `code` prints, as JSON, with the framework opened on the CPU."""
    script = (
        "import json\nfrom benchmarker.hooks import registry\n"
        f"hook = registry.load(['framework.{framework}']).hook\n"
        f"f = hook.make_framework(device='cpu', precision={precision!r}, threads={threads},"
        " profiling='no', devices=1)\n"
        f"print(json.dumps({code}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_threads_are_set_and_found_by_looking(framework):
    assert opened(framework, "fp32", "f.threads()", threads=1) == 1
    assert opened(framework, "fp32", "f.threads()", threads=2) == 2


def test_lapack_of_jax_has_the_threads_that_were_set():
    """It is SciPy's, with a thread pool of its own."""
    code = (
        "[each['num_threads'] for each in __import__('threadpoolctl').threadpool_info() if each['user_api'] == 'blas']"
    )
    threads = opened("jax", "fp32", code, threads=1)
    assert threads
    assert set(threads) == {1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "precision", "settings"),
    [
        ("jax", "fp32", {"jax_default_matmul_precision": "highest", "jax_enable_x64": "False"}),
        ("jax", "tf32", {"jax_default_matmul_precision": "tensorfloat32", "jax_enable_x64": "False"}),
        ("jax", "fp64", {"jax_default_matmul_precision": "highest", "jax_enable_x64": "True"}),
        ("torch", "fp32", {"float32_matmul_precision": "highest"}),
        ("torch", "tf32", {"float32_matmul_precision": "high"}),
    ],
)
def test_a_precision_is_set_and_read_back(framework, precision, settings):
    assert opened(framework, precision, "dict(f.settings())") == settings


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "make"), ARRAYS)
def test_nan_and_infinity_are_found(framework, make):
    code = f"[f.is_finite({make}([1.0, x])) for x in (2.0, float('nan'), float('-inf'), 2j, complex(0, float('nan')))]"
    assert opened(framework, "fp32", code) == [True, False, False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "make"), ARRAYS)
def test_nan_is_found_in_any_of_several_results(framework, make):
    code = f"[f.is_finite(({make}([1.0, 2.0]), {make}(x))) for x in (2.0, float('nan'))]"
    assert opened(framework, "fp32", code) == [True, False]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_describes_itself(framework):
    code = "(i := hook.describe_framework(), [i.name, i.devices[-1].platform, list(i.devices[-1].precisions)])[1]"
    name, platform, precisions = opened(framework, "fp32", code)
    assert (name, platform) == (framework, "cpu")
    assert "fp32" in precisions
    assert "tf32" not in precisions  # it wants a GPU


@pytest.mark.slow
def test_out_of_memory_is_told_apart():
    for framework, text in (
        ("jax", "RESOURCE_EXHAUSTED: Out of memory"),
        ("torch", "can't allocate memory: you tried"),
    ):
        assert opened(framework, "fp32", f"[f.is_out_of_memory(RuntimeError(x)) for x in ({text!r}, 'other')]") == [
            True,
            False,
        ]


def test_importing_a_framework_plugin_starts_no_device():
    """JAX's client is made when the framework is opened, after its threads are set."""
    pytest.importorskip("jax")
    code = "import benchmarker_plugins.frameworks.jax, jax; assert not jax._src.xla_bridge._backends"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
