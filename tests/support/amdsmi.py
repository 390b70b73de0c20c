"""A stand-in for AMD's `libamd_smi.so`, for the installed binding: amdsmi.c beside this file, and generated stubs."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import os
import re
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from support import cards

SOURCE = Path(__file__).with_suffix(".c")
STRUCTURES = (
    "amdsmi_asic_info_t",
    "amdsmi_clk_info_t",
    "amdsmi_engine_usage_t",
    "amdsmi_enumeration_info_t",
    "amdsmi_power_info_t",
)
"""Those that the C source spells out; of the table of metrics it takes size and offsets from the binding."""
METRICS = (
    "system_clock_counter",
    "indep_throttle_status",
    "accumulation_counter",
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)
NOT_SUPPORTED = 2


def library() -> Path:
    """The folder with `lib/libamd_smi.so`, built where these sources and this binding were not built before."""
    wrapper = importlib.metadata.distribution("amdsmi").locate_file("amdsmi/amdsmi_wrapper.py")
    source = Path(str(wrapper)).read_text()
    texts = [source, SOURCE.read_text(), Path(__file__).read_text(), (cards.HERE / "sensor.h").read_text()]
    folder = Path(tempfile.gettempdir(), f"benchmarker-fakes-{os.getuid()}", _digest(texts))
    target = folder / "lib" / "libamd_smi.so"
    if not target.exists():
        header = _layout(source)
        with tempfile.TemporaryDirectory() as scratch:
            Path(scratch, "layout.h").write_text(header)
            cards.build(SOURCE, target, f"-I{scratch}")
    return folder


def environment(script: Path) -> dict[str, str]:
    """The variables with which a new process finds the library, and in it the cards of a script."""
    folder = library()
    return {"ROCM_PATH": str(folder), "LD_LIBRARY_PATH": str(folder / "lib"), "FAKE_CARDS": str(script)}


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def _layout(source: str) -> str:
    """C that checks the structures, has the table's offsets, and defines a stub for what nothing else defines."""
    binding = types.ModuleType("amdsmi_wrapper")
    binding.__file__ = str(SOURCE)
    with mock.patch("ctypes.CDLL"):
        exec(compile(source, "amdsmi_wrapper.py", "exec"), vars(binding))
    lines = [_check(name, getattr(binding, name)._fields_, getattr(binding, name)) for name in STRUCTURES]
    table = binding.amdsmi_gpu_metrics_t
    lines.append(f"#define SIZE_amdsmi_gpu_metrics_t {ctypes.sizeof(table)}")
    lines += [f"#define OFFSET_{name} {getattr(table, name).offset}" for name in METRICS]
    own = set(re.findall(r"^int (amdsmi_\w+)\(", SOURCE.read_text(), re.MULTILINE))
    named = set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", source))
    if not own <= named:
        raise AssertionError(f"the binding does not have {own - named}")
    lines += [f"int {name}(void) {{ return {NOT_SUPPORTED}; }}" for name in sorted(named - own)]
    return "\n".join(lines) + "\n"


def _check(name: str, fields: Sequence[tuple[str, type]], structure: type[ctypes.Structure]) -> str:
    """Assertions on the size of a structure, and on the offsets of the fields that the C source has too."""
    body = re.search(rf"struct {name} {{(.*?)}};", SOURCE.read_text(), re.DOTALL)
    assert body, f"{SOURCE.name} has no {name}"
    words = set(re.findall(r"\w+", body.group(1)))
    checks = [f"sizeof(struct {name}) == {ctypes.sizeof(structure)}"]
    checks += [
        f"offsetof(struct {name}, {field}) == {getattr(structure, field).offset}"
        for field, *_ in fields
        if field in words
    ]
    return "\n".join(f'_Static_assert({check}, "{name}");' for check in checks)
