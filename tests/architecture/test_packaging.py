"""What a built distribution holds."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"benchmarker": ".", "plugins/benchmarker_plugins": "plugins", "problems/benchmarker_problems": "problems"}
"""Packages, and the folder that each is relative to."""


def test_each_entry_point_names_a_module_of_the_tree():
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["benchmarker"]
    for address, module in entries.items():
        top = "plugins" if module.startswith("benchmarker_plugins") else "problems"
        path = ROOT / top / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), address


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_all_its_data(tmp_path):
    source = tmp_path / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT / base).as_posix()
        for folder, base in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= held
    assert all(".dist-info/" in name for name in held - wanted)
