"""Programs as they are: processes of the operating system, which know nothing of a framework."""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from benchmarker import FLOATS, Device, Framework, FrameworkInfo, hookimpl

LISTED_S = 10.0
"""Time limit for listing GPUs, s."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe the operating system, and the GPUs whose energy can be counted; a program uses whatever it likes."""
    name, release = os.uname().sysname, os.uname().release
    gpus = _nvidia_gpus()
    cards = [Device("cuda", ", ".join(dict.fromkeys(gpus)), FLOATS, count=len(gpus))] if gpus else []
    return FrameworkInfo(
        name="program",
        version=release,
        devices=(
            Device("cpu", f"{name} {os.uname().machine}", tuple(name for name in FLOATS if name != "tf32"), count=1),
            *cards,
        ),
        compile="never",
        libraries={name: release},
        variables=("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
        executions=("executed",),
    )


def _nvidia_gpus() -> list[str]:
    """Return the names of the GPUs that nvidia-smi lists; none if it fails."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LISTED_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


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
