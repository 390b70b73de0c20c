"""Programs as they are: processes of the operating system, which know nothing of a framework."""

import os
from collections.abc import Mapping
from typing import Any

from benchmarker import PRECISIONS, Device, Framework, FrameworkInfo, hookimpl


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe the operating system; a program computes in whatever it likes."""
    name, release = os.uname().sysname, os.uname().release
    return FrameworkInfo(
        name="program",
        version=release,
        devices=(Device("cpu", f"{name} {os.uname().machine}", tuple(PRECISIONS), count=1),),
        compile="never",
        libraries={name: release},
        variables=("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
        executions=("executed",),
    )


@hookimpl
def make_framework() -> Framework:
    """Open nothing: whatever there is to open, the program opens."""
    return ProgramFramework()


class ProgramFramework(Framework):
    """A program has ended before it has a result, so no work is ever pending."""

    def synchronize(self, result: Any) -> None:
        """Return at once."""

    def is_finite(self, result: Any) -> bool:
        """Return True: what a program prints is checked by patterns."""
        return True

    def threads(self) -> None:
        """Return None: how many threads a program has is its own affair."""

    def settings(self) -> Mapping[str, str]:
        """Return no settings."""
        return {}

    def peak_memory_bytes(self) -> None:
        """Return None: a program reports no allocations."""
