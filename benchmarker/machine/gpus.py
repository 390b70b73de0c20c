"""GPUs as reported by the vendor's own tool, for choosing one and for describing the machine."""

import os
import subprocess
from collections.abc import Mapping

from benchmarker.api.errors import UserError
from benchmarker.records.machine import Gpu

SHOWN_BY = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}
"""The variable by which a process sees only some of the GPUs of a platform."""
_TIMEOUT_S = 10
_FIELDS = "index,name,uuid,driver_version,compute_cap,memory.total,power.limit,ecc.mode.current,mig.mode.current"


def list_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs in the order of their PCI addresses, as listed by `nvidia-smi`; none if it fails."""
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


def environment(index: int | None, variables: Mapping[str, str], count: int | None = 1) -> dict[str, str]:
    """Return the variables that show a worker only one GPU, by its UUID: the one with visible index `index`.

    If `index` is None, it is the first visible GPU, or the first `count`, or with None all. The index counts in
    PCI order, or within `CUDA_VISIBLE_DEVICES` if that is set. Without a visible GPU nothing is changed. Raises
    `UserError` if `index` is not a visible GPU.
    """
    gpus = list_gpus()
    visible = _visible(gpus, variables.get("CUDA_VISIBLE_DEVICES"))
    if index is None:
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in visible[:count])} if visible else {}
    if index >= len(visible):
        has = f"{len(visible)} visible" if gpus else "nvidia-smi finds none"
        raise UserError(f"--gpus={index}: no such GPU ({has}); `benchmarker env` lists them")
    return {"CUDA_VISIBLE_DEVICES": visible[index].uuid}


def one_of(platform: str, number: int, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that show a process one of the GPUs that it would see, by its number; none on a CPU."""
    if platform not in SHOWN_BY:
        return {}
    shown = variables.get(SHOWN_BY[platform])
    return {SHOWN_BY[platform]: shown.split(",")[number] if shown else str(number)}


def _visible(gpus: list[Gpu], listed: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` shows: indices or UUID prefixes, up to the first entry that is neither.

    Source: CUDA C++ Programming Guide, "CUDA environment variables".
    """
    if listed is None:
        return gpus
    visible: list[Gpu] = []
    for name in (word.strip() for word in listed.split(",")):
        matching = [gpu for gpu in gpus if name == str(gpu.index) or (name and gpu.uuid.startswith(name))]
        if len(matching) != 1:
            break
        visible += matching
    return visible


def _nvidia_smi(query: str) -> list[list[str]]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]


def _text(cell: str) -> str | None:
    """Return a cell, or None if nvidia-smi reports no value for it."""
    return None if cell.strip("[]") in ("N/A", "Not Supported", "") else cell


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
