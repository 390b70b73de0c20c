"""PyTorch: eager by default, `torch.compile` on request."""

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from benchmarker import (
    PRECISIONS,
    Device,
    DeviceTimer,
    Framework,
    FrameworkInfo,
    Precision,
    ProcessGroup,
    StepMarker,
    UserError,
    hookimpl,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "DNNL_MAX_CPU_ISA",
    "GLOO_SOCKET_IFNAME",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "NCCL_SOCKET_IFNAME",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
)

_NO_LIMIT = timedelta(days=1)
"""Longest wait for another rank: the time limit is the trial's."""
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Pair is not connected", "Broken pipe")
"""Texts of gloo's errors, which have no type of their own."""

_HOLD_S = (1e-3, 1.0)
"""Shortest and longest time for which the device is kept from beginning steps that are launched, s."""
_CYCLES_PER_S = 2e9
"""Highest clock rate of a GPU, about: a slower one is held for longer."""

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}
"""The PyTorch type of each type's name in `benchmarker.Precision`."""
_SUPPORTED = tuple(
    name for name, types in PRECISIONS.items() if types.compute in DTYPES and not (types.is_emulated or types.quantizes)
)
_ON_CPU = tuple(name for name in _SUPPORTED if name != "tf32")


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe PyTorch and its devices: the accelerator that it or a backend was built for, if it is there; the CPU."""
    devices = []
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator and accelerator.type != "cuda":
        devices.append(_accelerator(accelerator.type))
    if accelerator and accelerator.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        platform = "rocm" if torch.version.hip else "cuda"
        # TensorFloat-32 came with compute capability 8.0 (NVIDIA A100 whitepaper, 2020), fp8 with 8.9 (NVIDIA Ada GPU
        # architecture whitepaper, 2022).
        capability = (properties.major, properties.minor) if platform == "cuda" else (0, 0)
        lacks = {"tf32"} if capability < (8, 0) else set()
        lacks |= {name for name in _SUPPORTED if PRECISIONS[name].scale} if capability < (8, 9) else set()
        devices.append(
            Device(
                platform,
                properties.name,
                tuple(name for name in _SUPPORTED if name not in lacks),
                memory_bytes=properties.total_memory,
                cache_bytes=properties.L2_cache_size,
                uuid=f"GPU-{properties.uuid}",
                pci=_pci(properties),
                count=torch.cuda.device_count(),
            )
        )
    vectors = torch.backends.cpu.get_cpu_capability()
    devices.append(Device("cpu", f"CPU ({vectors})", _ON_CPU, count=None))
    return FrameworkInfo(
        name="torch",
        version=str(torch.__version__),
        devices=tuple(devices),
        compile="optional",
        libraries={"torch": str(torch.__version__)},
        variables=_VARIABLES,
        group="process_per_device",
        executions=("eager", "compiled"),
    )


def _pci(properties: Any) -> str | None:
    """Return the PCI address of a device, or None if this build of PyTorch does not report it."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    except AttributeError:
        return None


def _accelerator(kind: str) -> Device:
    """Describe an accelerator other than a GPU of CUDA or ROCm; a backend has only some of the functions for it."""
    module = torch.get_device_module(kind)
    name = getattr(module, "get_device_name", lambda: kind)()
    properties = module.get_device_properties(0) if hasattr(module, "get_device_properties") else None
    can_exchange = kind in dist.Backend.default_device_backend_map
    return Device(
        kind,
        name,
        tuple(name for name in _ON_CPU if _multiplies(kind, PRECISIONS[name])),
        memory_bytes=getattr(properties, "total_memory", None),
        count=torch.accelerator.device_count() if can_exchange else 1,
    )


def _multiplies(kind: str, types: Precision) -> bool:
    """Whether an accelerator multiplies two matrices of ones in a precision, with the right result; never in fp8."""
    if types.slices:
        return all(_multiplies(kind, PRECISIONS[name]) for name in (types.parameter, types.compute))
    if types.scale:
        return False  # products of PyTorch itself, `torch._scaled_mm`, have other rules on every device
    size = 32  # the least of `_int_mm` is 17
    try:
        ones = torch.ones((size, size), dtype=DTYPES[types.parameter], device=kind)
        with torch.autocast(kind, DTYPES[types.compute]) if types.is_mixed else nullcontext():
            product = torch._int_mm(ones, ones) if types.compute == "int8" else ones @ ones
        is_short = not types.is_mixed or product.dtype == DTYPES[types.compute]
        return is_short and bool((product.cpu() == size).all())
    except (RuntimeError, TypeError, AssertionError):
        return False


@hookimpl
def make_framework(device: str, precision: str, threads: int | None) -> Framework:
    """Open PyTorch on one device, with matrix products in exactly the requested precision."""
    if threads is not None:
        torch.set_num_threads(threads)
    tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    # The fastest convolution of cuDNN for each shape, as XLA finds it, not the one that a heuristic prefers.
    torch.backends.cudnn.benchmark = True
    # Sums of 16-bit products stay in fp32, as in JAX.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return TorchFramework(torch.device("cuda" if device == "rocm" else device))


def scope(name: str) -> AbstractContextManager[Any]:
    """Mark a part of a step, for the profiler or in a graph that is exported; otherwise the overhead is negligible."""
    if torch.compiler.is_compiling():
        return _annotated(name) if getattr(torch.compiler, "is_exporting", bool)() else _NO_SCOPE
    return record_function(name) if torch._C._autograd._profiler_enabled() else _NO_SCOPE


def _annotated(name: str) -> AbstractContextManager[Any]:
    """Annotate a part of a graph; older versions of PyTorch, which measure all but exported steps, do not have this."""
    from torch.fx.traceback import annotate

    annotation: AbstractContextManager[Any] = annotate({SCOPE: Entered(name)})
    return annotation


_NO_SCOPE = nullcontext()
SCOPE = "scope"
"""What the scope is called among the annotations of an exported graph."""


@dataclass(frozen=True, eq=False)
class Entered:
    """A scope of an exported graph, each time that it is entered."""

    name: str


def _first_store(group: ProcessGroup) -> TCPStore:
    """Return the store of a process group, whose port is open at the address of rank 0 alone."""
    kind = socket.AF_INET6 if ":" in group.host else socket.AF_INET
    with socket.create_server((group.host, 0), family=kind, backlog=group.ranks) as server:
        port = server.getsockname()[1]
        descriptor = server.detach()  # the store closes it
    return TCPStore(group.host, port, group.ranks, True, wait_for_workers=False, master_listen_fd=descriptor)


def _choose_interface(host: str) -> None:
    """Let gloo use the interface with this address, unless the user has chosen one; by itself it looks up a name."""
    addresses = psutil.net_if_addrs()
    name = next((name for name, found in addresses.items() if any(each.address == host for each in found)), None)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


class TorchFramework(Framework):
    """PyTorch on one device, or on that of a `rank` of a process group, the `local_rank`th of its node; `mesh` has all.

    It `sends` to the others, unless it is `silent`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = torch.get_device_module(device)
        self.rank = self.local_rank = 0
        self.ranks = 1
        self.mesh: DeviceMesh | None = None
        self.sends = True

    def join(self, group: ProcessGroup) -> None:
        """Join the process group, as the default one of PyTorch."""
        self.rank, self.local_rank, self.ranks = group.rank, group.local_rank, group.ranks
        if self.device.type != "cpu":
            self._module.set_device(group.local_rank)
        if not ipaddress.ip_address(group.own_host).is_loopback:
            _choose_interface(group.own_host)
        first = _first_store(group) if group.rank == 0 else None
        port = group.broadcast(first.port if first else None)
        self._group(first or TCPStore(group.host, port, group.ranks, False))
        self.mesh = init_device_mesh(self.device.type, (group.ranks,))

    def communicate(self) -> None:
        """Make sure that there is a process group: a process that has joined none gets one of its own."""
        if not dist.is_initialized():
            self._group(HashStore())

    def silent(self) -> "TorchFramework":
        """Return the same rank in a group whose exchanges send nothing, and leave any values; all ranks must call this.

        What is built with it does the work of the rank alone, and its results are wrong.
        """
        import_module("torch.testing._internal.distributed.fake_pg")  # makes the backend known
        made = copy(self)
        made.sends = False
        # By another name, the mesh is not equal to the real one, which DTensor would take from its caches instead.
        group = dist.new_group(backend="fake")
        made.mesh = DeviceMesh.from_group(group, self.device.type, mesh_dim_names=("silent",))
        return made

    def part(self, value: np.ndarray) -> np.ndarray:
        """Return the samples of this rank: an equal part of the first axis, which the number of ranks divides."""
        n = len(value) // self.ranks
        return value[self.rank * n : (self.rank + 1) * n]

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean over all ranks, which must all call this."""
        if self.mesh:
            value = value.clone()
            dist.all_reduce(value, group=self.mesh.get_group())
        return value / self.ranks

    def _group(self, store: Store) -> None:
        backend = dist.Backend.default_device_backend_map[self.device.type]
        dist.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.ranks, timeout=_NO_LIMIT, device_id=self._own()
        )

    def _own(self) -> torch.device | None:
        return torch.device(self.device.type, self.local_rank) if self.device.type != "cpu" else None

    def is_lost_peer(self, error: BaseException) -> bool:
        """Whether gloo or NCCL reports that a connection was closed."""
        return isinstance(error, dist.DistError) or any(text in str(error) for text in _LOST_PEER)

    def put(self, value: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a tensor on the device, converted to `dtype` if given; it is a copy, never a view of `value`."""
        return torch.tensor(value, dtype=dtype, device=self.device)

    def compiled(self, function: Callable[_P, _T], asked: bool) -> Callable[_P, _T]:
        """Return the function, compiled by `torch.compile` if `asked`; its shapes must not change."""
        return torch.compile(function, dynamic=False) if asked else function

    def synchronize(self, result: Any) -> None:
        """Wait for all launched work; on the CPU nothing is ever pending."""
        if self.device.type != "cpu":
            self._module.synchronize()

    def is_finite(self, result: Any) -> bool:
        """Whether every floating-point or complex tensor in `result` is finite throughout."""
        leaves = torch.utils._pytree.tree_leaves(result)
        return all(bool(torch.isfinite(leaf).all()) for leaf in leaves if isinstance(leaf, torch.Tensor))

    def threads(self) -> int:
        """Return the number of threads in PyTorch's intra-op pool."""
        return torch.get_num_threads()

    def settings(self) -> Mapping[str, str]:
        """Return the settings that determine the precision of matrix products."""
        settings = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
        if self.device.type == "cuda":
            matmul = torch.backends.cuda.matmul
            settings |= {
                "cuda.matmul.allow_tf32": str(matmul.allow_tf32),
                "cudnn.allow_tf32": str(torch.backends.cudnn.allow_tf32),
                "cudnn.benchmark": str(torch.backends.cudnn.benchmark),
                "cuda.matmul.allow_fp16_reduced_precision_reduction": str(
                    matmul.allow_fp16_reduced_precision_reduction
                ),
                "cuda.matmul.allow_bf16_reduced_precision_reduction": str(
                    matmul.allow_bf16_reduced_precision_reduction
                ),
            }
        return settings

    def peak_memory_bytes(self) -> int | None:
        """Return the allocator's peak; None for the CPU, and for an accelerator that counts none."""
        count = getattr(self._module, "max_memory_allocated", None)
        return count() if count and self.device.type != "cpu" else None

    def device_timer(self) -> DeviceTimer | None:
        """Return a timer by two events around the steps, on the current stream; only CUDA and ROCm have all of it."""
        return self._device_time_ns if self.device.type == "cuda" else None

    def _device_time_ns(self, step: Callable[[], Any], steps: int) -> int | None:
        """Return the time between two events around the steps, ns, which a sleeping kernel before them holds back.

        An event on an idle device passes at once: without that kernel, the time includes all waiting for launches. It
        does not include work on other streams that the current one does not wait for.
        """
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start_s = time.perf_counter()
        for _ in range(steps):
            step()
        launch_s = time.perf_counter() - start_s
        torch.cuda.synchronize()
        shortest_s, longest_s = _HOLD_S
        torch.cuda._sleep(round(min(shortest_s + 2 * launch_s, longest_s) * _CYCLES_PER_S))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(steps):
            step()
        end.record()
        is_held = not begin.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        return max(1, round(begin.elapsed_time(end) * 1e6)) if is_held else None

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Run PyTorch's profiler, with allocations, and the shapes of inputs, from which FLOPs are counted."""
        activities = [ProfilerActivity.CPU]
        if self.device.type != "cpu":
            own = getattr(ProfilerActivity, self.device.type.upper(), ProfilerActivity.PrivateUse1)
            activities += [own] if own in supported_activities() else []  # type: ignore[no-untyped-call]
        with profile(activities=activities, record_shapes=True, profile_memory=True, acc_events=True) as profiler:
            yield lambda number: record_function(f"ProfilerStep#{number}")
        if self.device.type not in ("cpu", "cuda"):
            assert profiler.profiler is not None
            events = profiler.profiler.kineto_results.events()
            if all(event.device_type() == DeviceType.CPU for event in events):
                raise UserError(f"PyTorch's profiler recorded nothing of {self.device.type}")
        profiler.export_chrome_trace(str(folder / "trace.json"))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the error is a `MemoryError`, CUDA's own, or the CPU allocator's RuntimeError."""
        return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
