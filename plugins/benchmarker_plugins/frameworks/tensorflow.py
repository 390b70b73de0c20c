"""TensorFlow on the CPU: every step is compiled by XLA."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from benchmarker import Device, Framework, FrameworkInfo, Profiling, StepMarker, hookimpl
from benchmarker_plugins.frameworks.quiet import quiet
from benchmarker_plugins.frameworks.xla_threads import pool_threads

os.environ["KERAS_BACKEND"] = "tensorflow"  # TensorFlow imports Keras, which takes this for the whole process
with quiet("TF_CPP_MIN_LOG_LEVEL", "2"):  # its messages about oneDNN, while it is imported, heed no level
    import tensorflow as tf

_P = ParamSpec("_P")
_T = TypeVar("_T")

_VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
_SEPARABLE_FLAG = "--xla_cpu_experimental_ynn_fusion_type="
"""By default XLA may fuse a product with subsequent ops of another scope."""
CPU = "/CPU:0"

DTYPES = {"fp64": tf.float64, "fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16, "int8": tf.int8}
"""The TensorFlow type of each type's name in `benchmarker.Precision`."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe TensorFlow on the CPU."""
    return FrameworkInfo(
        name="tensorflow",
        version=tf.__version__,
        devices=(Device("cpu", "CPU (TensorFlow XLA)", tuple(DTYPES), count=None),),
        compile="always",
        libraries={"tensorflow": tf.__version__, "keras": metadata.version("keras")},
        variables=_VARIABLES,
        executions=("jitted",),
    )


@hookimpl
def make_framework(threads: int | None, profiling: Profiling) -> Framework:
    """Open TensorFlow on the CPU; GPUs are left alone, whose memory it would take."""
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if profiling == "separable":
        os.environ["XLA_FLAGS"] = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), _SEPARABLE_FLAG)))
    tf.config.set_visible_devices([], "GPU")
    return TensorFlow()


class TensorFlow(Framework):
    """TensorFlow on the CPU, where a call returns when its result is computed."""

    def put(self, value: np.ndarray, dtype: Any = None) -> Any:
        """Return a tensor with its own memory, converted to `dtype` if given."""
        host = np.asarray(value, dtype.as_numpy_dtype if dtype else None)
        with tf.device(CPU):
            # A tensor made of an array has the memory of the array, if that is aligned.
            return tf.raw_ops.DeepCopy(x=tf.constant(host))

    def compiled(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return the function, compiled by XLA when it is first called; it runs where its arguments are."""
        compiled: Callable[_P, _T] = tf.function(function, jit_compile=True, autograph=False)
        return compiled

    def synchronize(self, result: Any) -> None:
        """Wait for all devices; on the CPU nothing is ever pending."""
        tf.test.experimental.sync_devices()

    def is_finite(self, result: Any) -> bool:
        """Whether every floating-point or complex tensor in `result` is finite throughout."""
        leaves = (leaf for leaf in tf.nest.flatten(result) if leaf.dtype.is_floating or leaf.dtype.is_complex)
        return all(bool(np.isfinite(leaf.numpy()).all()) for leaf in leaves)

    def threads(self) -> int | None:
        """Return the number of threads in XLA's pool, counted in this process; None except on Linux."""
        with tf.device(CPU):
            self.compiled(tf.negative)(tf.constant(0.0))  # XLA starts its threads for the first step that it compiles
        return pool_threads()

    def settings(self) -> Mapping[str, str]:
        """Return no settings: on the CPU XLA computes products in the type of its arguments."""
        return {}

    def peak_memory_bytes(self) -> None:
        """Return None: TensorFlow counts the memory of GPUs and TPUs alone."""

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Run TensorFlow's profiler, which writes what JAX's does, without tracing Python."""
        options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        with tf.profiler.experimental.Profile(str(folder), options):
            yield lambda number: tf.profiler.experimental.Trace("step", step_num=number, _r=1)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the error is a `MemoryError` or TensorFlow's own."""
        return isinstance(error, MemoryError | tf.errors.ResourceExhaustedError)
