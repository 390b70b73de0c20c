"""Each framework, opened in a process of its own, does what it was told."""

import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarker.hooks import registry

FRAMEWORKS = [plugin.name for plugin in registry.registered("framework").values()]
ARRAYS = [
    ("jax", "__import__('jax').numpy.array"),
    ("torch", "__import__('torch').tensor"),
    ("tensorflow", "(lambda x: __import__('tensorflow').constant(__import__('numpy').array(x)))"),
    ("numpy", "__import__('numpy').array"),
]
PRODUCTS = {
    "jax": "import jax; a = jax.device_put(a); step = jax.jit(lambda: jax.block_until_ready(a @ a))",
    "torch": "import torch; a = torch.from_numpy(a); step = lambda: a @ a",
    "tensorflow": "import tensorflow as tf; a, product = f.put(a), f.compiled(tf.matmul); step = lambda: product(a, a)",
    "numpy": "step = lambda: a @ a",
    "blas": "step = f.matmul(a, a, np.empty_like(a))",
    "onednn": "step = f.matmul(a, a, np.empty_like(a))",
}
"""A product of each framework that computes: programs have threads of their own."""

OPENED = """
import json
from benchmarker.hooks import registry
hook = registry.load(["framework.{framework}"]).hook
f = hook.make_framework(device="cpu", precision="{precision}", threads={threads}, profiling="no", devices=1)
print(json.dumps({code}))
"""


def opened(framework, precision, code, threads=None):
    """What `code` prints, as JSON, with the framework opened on the CPU."""
    script = OPENED.format(framework=framework, precision=precision, threads=threads, code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def on_one_thread(framework):
    """What a framework that has one thread says: its threads, those of each BLAS, and how it describes itself."""
    pools = (
        "[pool['num_threads'] for pool in __import__('threadpoolctl').threadpool_info() if pool['user_api'] == 'blas']"
    )
    info = "(i := hook.describe_framework(), [i.name, i.devices[-1].platform, list(i.devices[-1].precisions)])[1]"
    return opened(framework, "fp32", f"[f.threads(), {pools}, {info}]", threads=1)


@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.slow if name == "jax" else ()) for name in PRODUCTS]
)
def test_threads_are_set_and_found_by_looking(framework):
    assert on_one_thread(framework)[0] == 1
    assert opened(framework, "fp32", "f.threads()", threads=2) == 2


def test_lapack_of_jax_has_the_threads_that_were_set():
    """It is SciPy's, with a thread pool of its own."""
    threads = on_one_thread("jax")[1]
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
    for several in (f"({make}([1.0, 2.0]), {make}(x))", f"{{'one': {make}([1.0, 2.0]), 'two': {make}(x)}}"):
        code = f"[f.is_finite({several}) for x in (2.0, float('nan'))]"
        assert opened(framework, "fp32", code) == [True, False]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_describes_itself(framework):
    name, platform, precisions = on_one_thread(framework)[2]
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


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "0"])
def test_tensorflow_tells_of_itself_only_if_asked(level):
    code = (
        "import os, benchmarker_plugins.frameworks.tensorflow as plugin\n"
        "f = plugin.make_framework(threads=1, profiling='no'); f.threads(); print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    env |= {"TF_CPP_MIN_LOG_LEVEL": level} if level else {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == (level or "2")
    assert ("oneDNN" in done.stderr, done.stderr == "") == (level is not None, level is None)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of threads")
@pytest.mark.parametrize("framework", [*PRODUCTS])
def test_as_many_threads_are_busy_as_were_set(framework):
    """Whatever OMP_NUM_THREADS says: the largest number that is busy or waits for a core in a fifth of the moments.

    While other programs keep all cores busy, one thread is alone in up to 60% of them.
    """
    script = OPENED.format(framework=framework, precision="fp32", threads=2, code="f.threads()") + (
        f"import os, time, numpy as np\na = np.ones((2048, 2048), np.float32)\n{PRODUCTS[framework]}\nstep()\n"
        "print(os.getpid(), flush=True)\nend = time.monotonic() + 3\nwhile time.monotonic() < end: step()"
    )
    seen = Counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) as process:
        recorded, pid = (int(process.stdout.readline()) for _ in range(2))
        while process.poll() is None:
            with suppress(OSError):
                states = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
                seen[sum(state.rpartition(")")[2].split()[0] == "R" for state in states)] += 1
            time.sleep(0.005)
    assert (process.returncode, recorded) == (0, 2)
    assert max(number for number, moments in seen.items() if moments >= seen.total() / 5) == 2
