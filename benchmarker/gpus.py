"""GPUs as the vendor's own tool reports them, for choosing one and for describing the machine."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from benchmarker.errors import UserError
from benchmarker.record import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 10
_FIELDS = "index,name,uuid,driver_version,compute_cap,memory.total,power.limit,ecc.mode.current,mig.mode.current"


def list_gpus() -> list[Gpu]:
    """NVIDIA GPUs in the order of their PCI addresses, as `nvidia-smi` lists them; none where it fails."""
    table = _nvidia_smi(f"--query-gpu={_FIELDS}")
    processes = [row[0] for row in _nvidia_smi("--query-compute-apps=gpu_uuid")]
    gpus = []
    for row in table:
        index, name, uuid, driver, capability, memory_mib, power, ecc, mig = row
        memory = _number(memory_mib)
        gpus.append(
            Gpu(
                index=int(index),
                name=name,
                uuid=uuid,
                driver=_text(driver),
                compute_capability=_text(capability),
                memory_bytes=None if memory is None else int(memory) * 2**20,
                power_limit_W=_number(power),
                ecc=_text(ecc),
                mig=_text(mig),
                processes=processes.count(uuid),
            )
        )
    return gpus


def environment(index: int | None, variables: Mapping[str, str]) -> dict[str, str]:
    """What shows a worker one GPU alone: the one asked for, else the first visible, else (without a GPU) nothing."""
    gpus = list_gpus()
    if index is None and (not gpus or not variables.get("CUDA_VISIBLE_DEVICES", "any")):
        return {}
    return select(index or 0, gpus, variables)


def select(index: int, gpus: list[Gpu], environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that show a worker the GPU of visible index `index`, by its UUID, and no other.

    The visible index counts within `CUDA_VISIBLE_DEVICES` where that is set. Raises `UserError` where there is none.
    """
    by_name = {str(gpu.index): gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus}
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        visible = list(gpus)
    else:
        names = [name.strip() for name in listed.split(",") if name.strip()]
        visible = [by_name[name] for name in names if name in by_name]
    if not 0 <= index < len(visible):
        has = f"{len(visible)} visible" if gpus else "no NVIDIA GPU found by nvidia-smi"
        raise UserError(f"--gpus={index}: no such GPU ({has}); `benchmarker env` lists them")
    return {"CUDA_VISIBLE_DEVICES": visible[index].uuid}


def _nvidia_smi(query: str) -> list[list[str]]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]


def _text(cell: str) -> str | None:
    """A cell, or None where nvidia-smi has no value for it."""
    return None if cell.strip("[]") in ("N/A", "Not Supported", "") else cell


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
