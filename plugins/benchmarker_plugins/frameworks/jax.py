"""JAX: every step is compiled by XLA; named scopes cost nothing at run time."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from benchmarker import Device, Framework, FrameworkInfo, Profiling, StepMarker, UserError, hookimpl

_COMMON = ("fp64", "fp32", "bf16", "fp16", "int8", "mixed_bf16", "mixed_fp16")
_VARIABLES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_ENABLE_X64",
    "JAX_PLATFORMS",
    "NPROC",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "CUDA_VISIBLE_DEVICES",
)
_PROFILING_FLAGS = {"cuda": "--xla_gpu_enable_command_buffer=", "rocm": "--xla_gpu_enable_command_buffer="}
"""Kernels in a command buffer cannot be attributed to their HLO instructions."""
_SEPARABLE_FLAGS = {"cpu": "--xla_cpu_experimental_ynn_fusion_type="}
"""By default the CPU compiler may fuse a product with subsequent ops of another scope."""
_POOL_THREAD = "tf_XLAEigen"
"""Name prefix of the compute threads of XLA's CPU client."""

AXIS = "device"
"""Name of the only axis of the mesh of all devices."""
DTYPES = {
    "fp64": jnp.float64,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "int8": jnp.int8,
    "int4": jnp.int4,
}
"""The JAX type of each type's name in `benchmarker.Precision`."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe JAX and one device of each of its platforms."""
    libraries = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax") if _installed(name)}
    devices = {device.platform: device for device in [*jax.devices(), *jax.devices("cpu")]}
    return FrameworkInfo(
        name="jax",
        version=jax.__version__,
        devices=tuple(_describe(device) for device in devices.values()),
        compile="always",
        libraries=libraries,
        variables=_VARIABLES,
        gang="one_process",
    )


def _installed(distribution: str) -> bool:
    return any(True for _ in metadata.distributions(name=distribution))


def _platform(device: jax.Device) -> str:
    """Return the platform; JAX calls every GPU `gpu`, but its client knows the vendor."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def _describe(device: jax.Device) -> Device:
    platform = _platform(device)
    stats = device.memory_stats() or {}
    # TensorFloat-32 came with compute capability 8.0 (NVIDIA A100 whitepaper, 2020).
    has_tf32 = platform == "cuda" and float(getattr(device, "compute_capability", "0")) >= 8.0
    precisions = (*_COMMON, "tf32") if has_tf32 else _COMMON
    # On a GPU the limit is that of JAX's pool, by default 75% of the memory (JAX, "GPU memory allocation").
    memory_bytes = None if platform in ("cuda", "rocm") else stats.get("bytes_limit")
    count = None if platform == "cpu" else len(jax.devices(device.platform))
    return Device(platform, device.device_kind, precisions, memory_bytes=memory_bytes, count=count)


@hookimpl
def make_framework(device: str, precision: str, threads: int | None, profiling: Profiling, devices: int) -> Framework:
    """Open JAX on the first devices of a platform; a CPU is divided into so many.

    XLA reads the size of its thread pool from NPROC at client start. On a CPU it calls the LAPACK of SciPy, which has
    threads of its own. Two threads for each device of a CPU are the fewest with which a collective never waits for
    another that has no thread.
    """
    if device == "cpu" and devices > 1:
        fewest = 2 * devices
        if threads is not None and threads < fewest:
            raise UserError(f"jax needs --threads={fewest} or more for {devices} devices of a CPU, not {threads}")
        jax.config.update("jax_num_cpu_devices", devices)
        threads = threads or max(fewest, os.cpu_count() or 1)
    if threads is not None:
        os.environ["NPROC"] = str(threads)
        import_module("scipy.linalg.lapack")  # only the threads of a library that is loaded can be limited
        threadpoolctl.threadpool_limits(threads, user_api="blas")
    if profiling == "separable" and device not in _SEPARABLE_FLAGS:
        raise UserError(f"jax has no settings that keep scopes apart on {device}; omit --separable")
    if profiling != "no":
        flags = [os.environ.get("XLA_FLAGS", ""), _PROFILING_FLAGS.get(device, "")]
        flags += [_SEPARABLE_FLAGS[device]] if profiling == "separable" else []
        os.environ["XLA_FLAGS"] = " ".join(filter(None, flags))
    jax.config.update("jax_platforms", device if device == "cpu" else f"{device},cpu")
    jax.config.update("jax_enable_x64", precision == "fp64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest")
    return JaxFramework(*jax.devices(device)[:devices])


class JaxFramework(Framework):
    """JAX on one device, or several. A device executes work in order, so waiting for the last result suffices."""

    def __init__(self, *devices: jax.Device) -> None:
        self.devices = devices
        self.device = devices[0]

    def put(self, value: np.ndarray, dtype: Any = None, number: int = 0) -> jax.Array:
        """Return the array on the device with a number, converted to `dtype` if given."""
        return jax.device_put(jnp.asarray(value, dtype), self.devices[number])

    def divided(self, value: np.ndarray, spec: PartitionSpec, dtype: Any = None) -> jax.Array:
        """Return the array divided among all devices as `spec` says; each of them receives only its part."""
        host = np.asarray(value, jnp.dtype(dtype) if dtype else None)
        return jax.device_put(host, self.sharding(spec))

    def sharding(self, spec: PartitionSpec) -> Sharding:
        """Return the division of an array among all devices; on a single one, it is whole."""
        return NamedSharding(self.mesh, spec) if len(self.devices) > 1 else SingleDeviceSharding(self.device)

    @property
    def mesh(self) -> Mesh:
        """All devices along one axis."""
        return Mesh(np.array(self.devices), (AXIS,))

    def synchronize(self, result: Any) -> None:
        """Wait for every array in `result`."""
        jax.block_until_ready(result)

    def is_finite(self, result: Any) -> bool:
        """Whether every floating-point or complex array in `result` is finite throughout."""
        leaves = (leaf for leaf in jax.tree.leaves(result) if jnp.issubdtype(leaf.dtype, jnp.inexact))
        return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)

    def threads(self) -> int | None:
        """Return the number of threads in XLA's host pool, counted in this process; None except on Linux."""
        tasks = Path("/proc/self/task")
        if not tasks.is_dir():
            return None
        return sum((task / "comm").read_text().startswith(_POOL_THREAD) for task in tasks.iterdir())

    def settings(self) -> Mapping[str, str]:
        """Return the configuration that determines the precision of matrix products."""
        return {name: str(getattr(jax.config, name)) for name in ("jax_default_matmul_precision", "jax_enable_x64")}

    def peak_memory_bytes(self) -> int | None:
        """Return the allocator's peak, the sum over devices; the CPU's allocator does not track it."""
        peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in self.devices]
        known = [peak for peak in peaks if peak is not None]
        return sum(known) if len(known) == len(peaks) else None

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Run JAX's profiler without its Python tracing, which would slow the steps."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(str(folder), profiler_options=options):
            yield lambda number: jax.profiler.StepTraceAnnotation("step", step_num=number)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the error is a `MemoryError` or XLA's RESOURCE_EXHAUSTED."""
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
