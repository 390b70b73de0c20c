"""oneDNN alone on the CPU, called from C: the library of the extra `onednn`, or the file that BENCHMARKER_ONEDNN names.

Constants and types are those of oneDNN's headers, version 3 (`dnnl_types.h`, `dnnl_common_types.h`).
"""

import ctypes
import os
import sysconfig
import weakref
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_void_p
from functools import cache, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarker import Device, Framework, FrameworkInfo, UserError, hookimpl
from benchmarker_plugins.frameworks.numpy import NumpyFramework

VARIABLE = "BENCHMARKER_ONEDNN"
"""Environment variable with the file of a oneDNN."""
DTYPES: Mapping[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
}
"""The type of arrays in each precision that oneDNN has on some CPU."""
RESULT_DTYPES: Mapping[str, np.dtype[Any]] = {**DTYPES, "int8": np.dtype(np.int32)}
"""The type of the result of a product."""

_FILE = "libdnnl.so.3"
_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "DNNL_VERBOSE",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_VERBOSE",
)
_TYPES = {
    np.dtype(np.float16): 1,
    np.dtype(ml_dtypes.bfloat16): 2,
    np.dtype(np.float32): 3,
    np.dtype(np.int32): 4,
    np.dtype(np.int8): 5,
}
"""Values of `dnnl_data_type_t`."""
SOURCE, RESULT, WEIGHTS, BIAS, D_SOURCE, D_RESULT, D_WEIGHTS = 1, 17, 33, 41, 129, 145, 161
"""Numbers of arguments: `DNNL_ARG_SRC`, `DNNL_ARG_DST`, ..., `DNNL_ARG_DIFF_SRC`, ..."""
TRAINING, INFERENCE = 0x40, 0x60
"""`dnnl_forward_training` and `dnnl_forward_inference`."""
_CPU, _IN_ORDER = 1, 1
_ANY, _ALLOCATE, _DESCRIPTION_OF_ARGUMENT = 1, -1, 255
"""`dnnl_format_tag_any`, `DNNL_MEMORY_ALLOCATE`, and `dnnl_query_exec_arg_md`."""
_FPMATH_MODES = ("strict", "bf16", "f16", "any", "tf32")
_OUT_OF_MEMORY, _UNIMPLEMENTED = 1, 3
_VNNI = 0x08 | 0x40
"""Bits of `dnnl_cpu_isa_avx2_vnni` and `dnnl_cpu_isa_avx512_core_vnni` that those before them lack."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe oneDNN, with the precisions in which it multiplies on this processor."""
    framework = OnednnFramework(_library(os.environ.get(VARIABLE)))
    version = framework.library.version
    return FrameworkInfo(
        name="onednn",
        version=version,
        devices=(Device("cpu", f"CPU (oneDNN {version})", framework.precisions(), count=None),),
        compile="never",
        libraries={"onednn": version},
        variables=(VARIABLE, *_VARIABLES),
        executions=("eager",),
    )


@hookimpl
def make_framework(threads: int | None) -> Framework:
    """Open oneDNN, set to `threads` threads, without the shorter types in fp32 that a variable may allow."""
    library = _library(os.environ.get(VARIABLE))
    if threads is not None and (set_threads := library.of_openmp("omp_set_num_threads")):
        set_threads(threads)
    library.call("set_default_fpmath_mode", c_int(_FPMATH_MODES.index("strict")))
    return OnednnFramework(library)


@hookimpl
def find_library() -> str | None:
    """Return why oneDNN cannot be used; what the extra installs is not loaded for that."""
    file = os.environ.get(VARIABLE)
    if file or not _installed().exists():
        try:
            Library(file)
        except UserError as error:
            return str(error)
    return None


def _installed() -> Path:
    return Path(sysconfig.get_path("data"), "lib", _FILE)


@cache
def _library(file: str | None) -> "Library":
    return Library(file)


class _Version(ctypes.Structure):
    """`dnnl_version_t`."""

    _fields_ = [
        *((name, c_int) for name in ("major", "minor", "patch")),
        ("hash", c_char_p),
        *((name, c_uint) for name in ("cpu_runtime", "gpu_runtime")),
    ]


class _Argument(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


class Library:
    """A loaded oneDNN. Raises `UserError` if the file cannot be loaded or has not the interface of version 3."""

    def __init__(self, file: str | None) -> None:
        installed = _installed()
        try:
            self._loaded = ctypes.CDLL(file or (str(installed) if installed.exists() else _FILE))
        except OSError as error:
            remedy = "" if file else "pip install onednn-cpu-gomp, or "
            raise UserError(f"cannot load oneDNN: {error}; {remedy}let {VARIABLE} be its file") from error
        if not hasattr(self._loaded, "dnnl_matmul_primitive_desc_create"):
            raise UserError(f"{VARIABLE}={file} is not oneDNN of version 3; let it be the file of one, {_FILE}")

    @property
    def version(self) -> str:
        """Major, minor and patch version."""
        told = self._loaded.dnnl_version
        told.restype = ctypes.POINTER(_Version)
        version = told().contents
        return f"{version.major}.{version.minor}.{version.patch}"

    def function(self, name: str) -> Any:
        """Return a function that returns a status, which raises an error if it did not succeed."""
        found = getattr(self._loaded, f"dnnl_{name}")
        found.restype = _succeed
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """Call such a function."""
        self.function(name)(*arguments)

    def description_of(self, chosen: "Object", argument: int) -> c_void_p:
        """Return the description of an argument that an implementation has chosen, whose property it is."""
        query = self._loaded.dnnl_primitive_desc_query_md
        query.restype = c_void_p
        return c_void_p(query(chosen, c_int(_DESCRIPTION_OF_ARGUMENT), c_int(argument)))

    def are_equal(self, one: Any, other: Any) -> bool:
        """Whether two descriptions have the same shape, type and layout."""
        return bool(self._loaded.dnnl_memory_desc_equal(one, other))

    def of_openmp(self, name: str) -> Any:
        """Return a function of the OpenMP runtime that the library is linked to; None if it has other threads."""
        return getattr(self._loaded, name, None)

    def has_exact_int8(self) -> bool:
        """Whether products of int8 are summed in int32: without VNNI, sums of two are kept in 16 bits, and saturate.

        Source: oneDNN, Developer Guide, "Nuances of int8 Computations".
        """
        isa = getattr(self._loaded, "dnnl_get_effective_cpu_isa", None)
        return isa is not None and bool(isa() & _VNNI)


def _succeed(status: int) -> None:
    if status == _OUT_OF_MEMORY:
        raise MemoryError("oneDNN is out of memory")
    if status == _UNIMPLEMENTED:
        raise NotImplementedError("oneDNN has no implementation of this on this processor")
    if status:
        raise RuntimeError(f"oneDNN failed with status {status}")


class Object:
    """An object of the library. It lives as long as this, which keeps what it is made of; ctypes passes its address."""

    def __init__(self, library: Library, kind: str, create: str, *arguments: Any) -> None:
        self._as_parameter_ = c_void_p()
        self._kept = arguments
        library.call(create, byref(self._as_parameter_), *arguments)
        weakref.finalize(self, library.call, f"{kind}_destroy", self._as_parameter_)

    def as_argument(self, number: int) -> _Argument:
        """Return this, which is a memory, as an argument of a primitive."""
        return _Argument(number, self._as_parameter_)


class _Arguments:
    """The arguments of a primitive; it keeps the memories that they point to."""

    def __init__(self, memories: Mapping[int, Object]) -> None:
        self._kept = memories
        self._as_parameter_ = (_Argument * len(memories))(*(each.as_argument(n) for n, each in memories.items()))


class OnednnFramework(NumpyFramework):
    """oneDNN on NumPy arrays. Built with OpenMP, a call returns when its result is complete; without, it may not."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._engine = Object(library, "engine", "engine_create", c_int(_CPU), c_size_t(0))
        self._stream = Object(library, "stream", "stream_create", self._engine, c_uint(_IN_ORDER))
        self._own: weakref.WeakKeyDictionary[Object, dict[int, Object]] = weakref.WeakKeyDictionary()

    def synchronize(self, result: Any) -> None:
        """Wait until all calls are complete."""
        self.library.call("stream_wait", self._stream)

    def threads(self) -> int | None:
        """Return the number of threads that the OpenMP runtime reports; None if the library has others."""
        most = self.library.of_openmp("omp_get_max_threads")
        return int(most()) if most else None

    def settings(self) -> Mapping[str, str]:
        """Return the mode that says in which shorter types products of fp32 may be computed: `strict` is none."""
        mode = c_int()
        self.library.call("get_default_fpmath_mode", byref(mode))
        return {"fpmath_mode": _FPMATH_MODES[mode.value]}

    def precisions(self) -> tuple[str, ...]:
        """Return the precisions in which this processor has products; int8 only where its sums are exact."""
        return tuple(
            name for name in DTYPES if self._multiplies(name) and (name != "int8" or self.library.has_exact_int8())
        )

    def _multiplies(self, precision: str) -> bool:
        one = np.zeros((1, 1), DTYPES[precision])
        try:
            self.matmul(one, one, one.astype(RESULT_DTYPES[precision]))
        except NotImplementedError:
            return False
        return True

    def matmul(self, left: np.ndarray, right: np.ndarray, result: np.ndarray) -> Callable[[], object]:
        """Return the call that writes left[..., M, K] · right[..., K, N] to result[..., M, N], all as they are stored.

        Raises `NotImplementedError` if this processor has no product of their types.
        """
        a, b, c = (self.described(array) for array in (left, right, result))
        chosen = self.chosen("matmul", a, b, None, c, None)
        (call,) = self.calls(chosen, {SOURCE: left, WEIGHTS: right}, {RESULT: result})
        return call

    def described(self, array: np.ndarray, *, stored: bool = True) -> Object:
        """Return the shape and type of an array, with its strides if it is to be used as it is `stored`.

        Without them, what is made of it chooses the layout.
        """
        dims = c_int64 * array.ndim
        shape = c_int(array.ndim), dims(*array.shape), c_int(_TYPES[array.dtype])
        if not stored:
            return self._made("memory_desc", "memory_desc_create_with_tag", *shape, c_int(_ANY))
        strides = dims(*(stride // array.itemsize for stride in array.strides))
        return self._made("memory_desc", "memory_desc_create_with_strides", *shape, strides)

    def chosen(self, primitive: str, *arguments: Any) -> Object:
        """Return the implementation of a primitive that oneDNN chooses: `dnnl_..._primitive_desc_create`."""
        return self._made("primitive_desc", f"{primitive}_primitive_desc_create", self._engine, *arguments)

    def calls(
        self, chosen: Object, inputs: Mapping[int, np.ndarray], outputs: Mapping[int, np.ndarray]
    ) -> list[Callable[[], object]]:
        """Return the calls that execute a primitive on arrays, by their numbers as arguments.

        Where it has chosen another layout than that of an array, a call before or after it reorders, by a memory that
        all calls of the implementation share.
        """
        before: list[Callable[[], object]] = []
        after: list[Callable[[], object]] = []
        memories: dict[int, Object] = {}
        for number, array in {**inputs, **outputs}.items():
            stored = self.described(array)
            memories[number] = given = self._memory(stored, array.ctypes.data_as(c_void_p))
            wanted = self.library.description_of(chosen, number)
            if not self.library.are_equal(stored, wanted):
                own = self._own.setdefault(chosen, {}).get(number) or self._memory(wanted, c_void_p(_ALLOCATE))
                memories[number] = self._own[chosen][number] = own
                if number in inputs:
                    before.append(self._reorder((stored, given), (wanted, own)))
                else:
                    after.append(self._reorder((wanted, own), (stored, given)))
        return [*before, self._execution(chosen, memories), *after]

    def _reorder(self, source: tuple[Any, Object], result: tuple[Any, Object]) -> Callable[[], object]:
        """Return the call that copies a memory to one of another description."""
        ends = source[0], self._engine, result[0], self._engine
        chosen = self._made("primitive_desc", "reorder_primitive_desc_create", *ends, None)
        return self._execution(chosen, {SOURCE: source[1], RESULT: result[1]})

    def _execution(self, chosen: Object, memories: Mapping[int, Object]) -> Callable[[], object]:
        primitive = self._made("primitive", "primitive_create", chosen)
        execute = self.library.function("primitive_execute")
        return partial(execute, primitive, self._stream, c_int(len(memories)), _Arguments(memories))

    def _memory(self, description: Any, place: c_void_p) -> Object:
        return self._made("memory", "memory_create", description, self._engine, place)

    def _made(self, kind: str, create: str, *arguments: Any) -> Object:
        return Object(self.library, kind, create, *arguments)
