"""A bare BLAS on the CPU, called from C: the one that NumPy is linked to, or the file that BENCHMARKER_BLAS names."""

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import c_int, c_int64, c_void_p
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from benchmarker import Device, Framework, FrameworkInfo, UserError, hookimpl
from benchmarker_plugins.frameworks.numpy import VARIABLES, NumpyFramework

VARIABLE = "BENCHMARKER_BLAS"
"""Environment variable with the file of a BLAS."""
DTYPES: Mapping[str, np.dtype[Any]] = {"fp64": np.dtype(np.float64), "fp32": np.dtype(np.float32)}
"""The type of arrays of each precision."""
_LETTERS = {DTYPES["fp64"]: ("d", ctypes.c_double), DTYPES["fp32"]: ("s", ctypes.c_float)}
"""The letter of a type in the names of routines, and the type of a scalar argument."""
_NUMPY = "numpy._core._multiarray_umath"
"""The extension module with `np.matmul`. A name is looked up in it and in what it is linked to, such as its BLAS."""
_AFFIXES = tuple(product(("", "scipy_"), ("", "64_")))
"""What stands before and after names: in the OpenBLAS of NumPy and SciPy, and in OpenBLAS with 64-bit integers."""
_ROW_MAJOR, _AS_STORED, _TRANSPOSED = 101, 111, 112
"""CblasRowMajor, CblasNoTrans and CblasTrans (BLAS Technical Forum Standard, 2001, B.2.3)."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe the BLAS; the device is named after it."""
    library = _library(os.environ.get(VARIABLE))
    return FrameworkInfo(
        name="blas",
        version=library.version,
        devices=(Device("cpu", f"CPU ({library.name})", tuple(DTYPES), count=None),),
        compile="never",
        libraries={"blas": library.name},
        variables=(VARIABLE, *VARIABLES),
        executions=("eager",),
    )


@hookimpl
def make_framework(threads: int | None) -> Framework:
    """Open the BLAS, set to `threads` threads."""
    library = _library(os.environ.get(VARIABLE))
    if threads is not None and library.controller:
        library.controller.set_num_threads(threads)
    return BlasFramework(library)


@cache
def _library(file: str | None) -> "Library":
    return Library(file)


class Library:
    """A loaded BLAS. Raises `UserError` if the file cannot be loaded, or has no `cblas_dgemm`."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        try:
            self._loaded = ctypes.CDLL(file or import_module(_NUMPY).__file__)
        except OSError as error:
            raise UserError(f"{VARIABLE} names a file that cannot be loaded: {error}") from error
        known = [affixes for affixes in _AFFIXES if hasattr(self._loaded, "{}cblas_dgemm{}".format(*affixes))]
        if not known:
            what = f"{VARIABLE}={file} has" if file else "NumPy is linked to"
            raise UserError(f"{what} no cblas_dgemm; let {VARIABLE} be the file of a BLAS, such as libopenblas.so.0")
        self._prefix, self._suffix = known[0]

    def function(self, name: str, result: Any = None) -> Any:
        """Return a function by the name that it has in headers of C; None if there is none."""
        found = getattr(self._loaded, f"{self._prefix}{name}{self._suffix}", None)
        if found is not None:
            found.restype = result
        return found

    @cached_property
    def controller(self) -> Any:
        """What knows the threads and the version of the library; None if threadpoolctl knows none of this kind."""
        own = self.function("cblas_dgemm")
        for each in threadpoolctl.ThreadpoolController().lib_controllers:
            same = getattr(each.dynlib, own.__name__, None) if each.user_api == "blas" else None
            if same and _address(same) == _address(own):
                return each
        return None

    @property
    def version(self) -> str:
        """The version; `unknown` if the library does not tell it."""
        return str((self.controller and self.controller.version) or "unknown")

    @property
    def name(self) -> str:
        """Kind, version and architecture of the kernels (`openblas 0.3.31 SkylakeX`); or else the file's name."""
        if self.controller is None:
            return Path(self._file).name if self._file else "BLAS of NumPy"
        told = self.controller.info()
        return " ".join(filter(None, [told["internal_api"], told["version"], told.get("architecture")]))


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


class BlasFramework(NumpyFramework):
    """A BLAS has computed its result when a call returns. Matrices are NumPy arrays."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def threads(self) -> int | None:
        """Return the number of threads that the BLAS reports; None if it is of an unknown kind."""
        return int(self._library.controller.num_threads) if self._library.controller else None

    def settings(self) -> Mapping[str, str]:
        """Return how OpenBLAS was built and what it chose here; nothing for other libraries."""
        config = self._library.function("openblas_get_config", ctypes.c_char_p)
        return {"openblas_get_config": " ".join(config().decode().split())} if config else {}

    def routine(self, name: str, dtype: np.dtype[Any]) -> Any:
        """Return the function of a routine for a type: `gemm` in double precision is `cblas_dgemm`."""
        return self._library.function(f"cblas_{_LETTERS[dtype][0]}{name}")

    def matmul(self, left: np.ndarray, right: np.ndarray, result: np.ndarray) -> Callable[[], object]:
        """Return the calls that write left[..., M, K] · right[..., K, N] to result[..., M, N], one for each matrix.

        The rows or the columns of each matrix must be contiguous. Arguments are converted here, not in a call.
        Integers have 64 bits. A library with 32-bit integers reads the lower half of their registers and stack slots
        (System V ABI of x86-64, and AAPCS64).
        """
        gemm, scalar = self.routine("gemm", result.dtype), _LETTERS[result.dtype][1]
        m, n, k = *result.shape[-2:], left.shape[-1]

        def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], object]:
            (a_order, a_distance), (b_order, b_distance) = _stored(a), _stored(b)
            orders = (c_int(each) for each in (_ROW_MAJOR, a_order, b_order))
            sizes = (c_int64(each) for each in (m, n, k))
            factors = (scalar(1), pointer(a), c_int64(a_distance), pointer(b), c_int64(b_distance))
            return partial(gemm, *orders, *sizes, *factors, scalar(0), pointer(c), c_int64(n))

        if result.ndim == 2:
            return call(left, right, result)
        calls = [call(*each) for each in zip(left, right, result, strict=True)]

        def all_calls() -> None:
            for each in calls:
                each()

        return all_calls


def pointer(array: np.ndarray) -> c_void_p:
    """Return the address of an array's first element, which keeps the array."""
    return array.ctypes.data_as(c_void_p)


def _stored(matrix: np.ndarray) -> tuple[int, int]:
    """Return whether a matrix is stored by rows or by columns, and the distance of two of them in elements.

    The distance of a single row or column, which may be any, is that of those that follow each other directly.
    """
    (rows, columns), (down, across) = matrix.shape, (stride // matrix.itemsize for stride in matrix.strides)
    return (_AS_STORED, max(down, columns)) if across == 1 else (_TRANSPOSED, max(across, rows))
