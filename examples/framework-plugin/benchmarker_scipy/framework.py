"""SciPy: its own BLAS, called directly instead of through NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import threadpoolctl

from benchmarker import Device, Framework, FrameworkInfo, hookimpl


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe SciPy on the CPU; the device is named after the BLAS that SciPy was built with."""
    blas = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return FrameworkInfo(
        name="scipy",
        version=scipy.__version__,
        devices=(Device("cpu", f"CPU ({blas['name']} {blas['version']})", ("fp64", "fp32")),),
        compile="never",
        libraries={"scipy": scipy.__version__, "numpy": np.__version__},
        variables=("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS"),
    )


@hookimpl
def make_framework(threads: int | None) -> Framework:
    """Open SciPy, with every BLAS of this process, including NumPy's, set to `threads` threads."""
    if threads is not None:
        threadpoolctl.threadpool_limits(threads, user_api="blas")
    return ScipyFramework()


class ScipyFramework(Framework):
    """SciPy computes synchronously, so no work is ever pending. A step returns a list of arrays."""

    def synchronize(self, result: Any) -> None:
        """Return at once: the result is already computed."""

    def is_finite(self, result: list[np.ndarray]) -> bool:
        """Whether no array contains NaN or infinity."""
        return all(bool(np.isfinite(array).all()) for array in result)

    def threads(self) -> int:
        """Return the largest number of threads that a BLAS of this process reports."""
        pools = threadpoolctl.threadpool_info()
        return max((pool["num_threads"] for pool in pools if pool["user_api"] == "blas"), default=1)

    def settings(self) -> Mapping[str, str]:
        """Return no settings: BLAS computes in the type of its arguments."""
        return {}

    def peak_memory_bytes(self) -> None:
        """Return None: SciPy does not track allocations."""
