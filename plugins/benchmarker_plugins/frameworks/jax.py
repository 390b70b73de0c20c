"""JAX: every step is compiled by XLA; named scopes cost nothing at run time."""

import ctypes
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from importlib import import_module, metadata
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from benchmarker import (
    PRECISIONS,
    Device,
    Framework,
    FrameworkInfo,
    ProcessGroup,
    Profiling,
    StepMarker,
    UserError,
    hookimpl,
)
from benchmarker_plugins.frameworks.xla_threads import pool_threads

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
_NO_LIMIT_S = 86400
"""Longest wait for another rank: the time limit is the trial's. JAX aborts a process that has waited for so long."""
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed")
"""Texts of errors of gloo and of JAX's coordination service, which have no types of their own."""

AXIS = "device"
"""Name of the only axis of the mesh of all devices."""
DTYPES = {
    "fp64": jnp.float64,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "fp8_e4m3": jnp.float8_e4m3fn,
    "fp8_e5m2": jnp.float8_e5m2,
    "int8": jnp.int8,
    "int4": jnp.int4,
}
"""The JAX type of each type's name in `benchmarker.Precision`."""
_SUPPORTED = tuple(
    name for name, types in PRECISIONS.items() if types.compute in DTYPES and not (types.is_emulated or types.quantizes)
)
_WITHOUT_TF32 = tuple(name for name in _SUPPORTED if name != "tf32")


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe JAX and one device of each of its platforms."""
    libraries = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax") if _installed(name)}
    devices = {device.platform: device for device in [*jax.local_devices(), *jax.local_devices(backend="cpu")]}
    return FrameworkInfo(
        name="jax",
        version=jax.__version__,
        devices=tuple(_describe(device) for device in devices.values()),
        compile="always",
        libraries=libraries,
        variables=_VARIABLES,
        group="process_per_node",
        executions=("jitted",),
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
    precisions = _SUPPORTED if has_tf32 else _WITHOUT_TF32
    # On a GPU the limit is that of JAX's pool, by default 75% of the memory (JAX, "GPU memory allocation").
    known: dict[str, Any] = {"memory_bytes": None if platform in ("cuda", "rocm") else stats.get("bytes_limit")}
    if platform == "cuda":
        known = of_driver(device.local_hardware_id)
    count = None if platform == "cpu" else len(jax.local_devices(backend=device.platform))
    return Device(platform, device.device_kind, precisions, count=count, **known)


_L2_CACHE_SIZE = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE (CUDA Driver API, enum CUdevice_attribute)."""


def of_driver(ordinal: int) -> dict[str, Any]:
    """Return what CUDA's driver tells of a GPU and JAX does not, as fields of `Device`; nothing without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, memory, cache = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()
    uuid, pci = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    failed = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        or cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        or cuda.cuDeviceGetAttribute(ctypes.byref(cache), _L2_CACHE_SIZE, device)
        or cuda.cuDeviceGetUuid(uuid, device)
        or cuda.cuDeviceGetPCIBusId(pci, len(pci), device)
    )
    if failed:
        return {}
    return {
        "memory_bytes": memory.value,
        "cache_bytes": cache.value,
        "uuid": f"GPU-{UUID(bytes=uuid.raw)}",
        "pci": pci.value.decode().lower(),
    }


@hookimpl
def make_framework(device: str, precision: str, threads: int | None, profiling: Profiling, devices: int) -> Framework:
    """Open JAX on the first devices of a platform on this node; a CPU is divided into so many.

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
        raise UserError(f"jax has no settings that keep scopes separate on {device}; omit --separable")
    if profiling != "no":
        flags = [os.environ.get("XLA_FLAGS", ""), _PROFILING_FLAGS.get(device, "")]
        flags += [_SEPARABLE_FLAGS[device]] if profiling == "separable" else []
        os.environ["XLA_FLAGS"] = " ".join(filter(None, flags))
        jax.config.update("jax_enable_compilation_cache", False)  # the profiler finds no scopes in what it holds
    jax.config.update("jax_platforms", device if device == "cpu" else f"{device},cpu")
    jax.config.update("jax_traceback_filtering", "off")  # its hint would end up in every message
    jax.config.update("jax_enable_x64", PRECISIONS[precision].parameter == "fp64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest")
    return JaxFramework(device, devices)


@contextmanager
def _reserved_port(host: str) -> Iterator[int]:
    """Keep a port that is free from all but the coordination service, which shares ports with sockets like this one."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, 0))
        yield reserved.getsockname()[1]


def _refuse_unreachable(group: ProcessGroup) -> None:
    """Raise `UserError` if other nodes cannot reach gloo, for which JAX chooses the address of this host's name."""
    name, own = socket.gethostname(), ip_address(group.own_host)
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        found = "unknown"
    if not own.is_loopback and (found == "unknown" or ip_address(found).is_loopback):
        raise UserError(
            f"jax exchanges data between CPUs at the address of the host's name {name}, which is {found} here; "
            f"let it be {own}, for example in /etc/hosts"
        )


class JaxFramework(Framework):
    """JAX on some devices of a platform, or on so many of each rank of a process group.

    A device executes work in order, so waiting for the last result suffices.
    """

    def __init__(self, platform: str, count: int = 1) -> None:
        self.platform = platform
        self._count = count
        self._ranks = 1

    def join(self, group: ProcessGroup) -> None:
        """Join the process group by JAX's coordination service, which listens at the address of rank 0."""
        if self.platform == "cpu":
            _refuse_unreachable(group)
        self._ranks = group.ranks
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
        with _reserved_port(group.host) if group.rank == 0 else nullcontext() as port:
            host = f"[{group.host}]" if ":" in group.host else group.host
            address = f"{host}:{group.broadcast(port)}"
            jax.distributed.initialize(
                address,
                group.ranks,
                group.rank,
                local_device_ids=range(self._count),
                initialization_timeout=_NO_LIMIT_S,
                heartbeat_timeout_seconds=_NO_LIMIT_S,
                coordinator_bind_address=address,
            )

    @cached_property
    def devices(self) -> tuple[jax.Device, ...]:
        """All devices that compute together, in the order of their ranks; JAX starts when they are first asked for."""
        found = sorted(jax.devices(self.platform), key=lambda device: (device.process_index, device.id))
        return tuple(found[: self._ranks * self._count])

    @property
    def own(self) -> Mapping[int, jax.Device]:
        """The devices of this process by their number among all; the others cannot be given anything."""
        return {n: device for n, device in enumerate(self.devices) if device.process_index == jax.process_index()}

    @property
    def device(self) -> jax.Device:
        """The first device of this process."""
        return next(iter(self.own.values()))

    def is_lost_peer(self, error: BaseException) -> bool:
        """Whether gloo or the coordination service reports that a connection was closed."""
        return any(text in str(error) for text in _LOST_PEER)

    def put(self, value: np.ndarray, dtype: Any = None, device: jax.Device | None = None) -> jax.Array:
        """Return the array on a device of this process, by default the first, converted to `dtype` if given."""
        host = np.asarray(value, jnp.dtype(dtype) if dtype else None)  # on the device, it would take twice as long
        return jax.device_put(host, device or self.device)

    def divided(self, value: np.ndarray, spec: PartitionSpec, dtype: Any = None) -> jax.Array:
        """Return the array divided among all devices as `spec` says; each of them receives only its part."""
        host = np.asarray(value, jnp.dtype(dtype) if dtype else None)
        return jax.make_array_from_callback(host.shape, self.sharding(spec), lambda part: host[part])

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
        return pool_threads() if self.devices else None

    def settings(self) -> Mapping[str, str]:
        """Return the configuration that determines the precision of matrix products."""
        return {name: str(getattr(jax.config, name)) for name in ("jax_default_matmul_precision", "jax_enable_x64")}

    def peak_memory_bytes(self) -> int | None:
        """Return the allocator's peak, the sum over devices of this process; the CPU's allocator does not track it."""
        peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in self.own.values()]
        known = [peak for peak in peaks if peak is not None]
        return sum(known) if len(known) == len(peaks) else None

    @contextmanager
    def fp64(self) -> Iterator[None]:
        """Let JAX have 64-bit types, which it does not by default."""
        before = jax.config.values["jax_enable_x64"]
        jax.config.update("jax_enable_x64", True)
        try:
            yield
        finally:
            jax.config.update("jax_enable_x64", before)

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
