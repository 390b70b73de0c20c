"""NumPy and SciPy on the CPU."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
import threadpoolctl

from benchmarker import PRECISIONS, Device, Framework, FrameworkInfo, hookimpl

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS")
"""Environment variables that change the speed of a BLAS."""
_SUPPORTED = ("fp64", "fp32", *(name for name, types in PRECISIONS.items() if types.is_emulated))


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe NumPy on the CPU; the device is named after the BLAS that does the work."""
    blas = _blas()
    name = f"CPU ({blas['internal_api']} {blas['version']})" if blas else "CPU (no BLAS found)"
    return FrameworkInfo(
        name="numpy",
        version=np.__version__,
        devices=(Device("cpu", name, _SUPPORTED, count=None),),
        compile="never",
        libraries={"numpy": np.__version__, "scipy": metadata.version("scipy")},
        variables=VARIABLES,
        executions=("eager",),
    )


@hookimpl
def make_framework(threads: int | None) -> Framework:
    """Open NumPy, with its BLAS set to `threads` threads."""
    if threads is not None:
        threadpoolctl.threadpool_limits(threads, user_api="blas")
    return NumpyFramework()


class NumpyFramework(Framework):
    """NumPy computes synchronously, so no work is ever pending."""

    def synchronize(self, result: Any) -> None:
        """Return at once: the result is already computed."""

    def is_finite(self, result: Any) -> bool:
        """Whether every number and array in `result`, which may be nested, is free of NaN and infinity."""
        if isinstance(result, Mapping | tuple | list):
            return all(self.is_finite(each) for each in (result.values() if isinstance(result, Mapping) else result))
        return not isinstance(result, np.ndarray | np.generic | int | float | complex) or bool(
            np.isfinite(result).all()
        )

    def threads(self) -> int | None:
        """Return the number of threads that the BLAS reports."""
        blas = _blas()
        return int(blas["num_threads"]) if blas else 1

    def settings(self) -> Mapping[str, str]:
        """Return no settings: BLAS computes in the type of its arguments."""
        return {}

    def peak_memory_bytes(self) -> None:
        """Return None: NumPy does not track allocations."""


def _blas() -> dict[str, Any] | None:
    found = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    return found[0] if found else None
