"""The container files copy what an installation needs, name extras that exist, and document commands that parse."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.commands import parsed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "containers"
CONTAINERFILE, DEFINITION = (FOLDER / name for name in ("Containerfile", "benchmarker.def"))
TEXTS = {path.name: path.read_text() for path in sorted(FOLDER.iterdir())}


def copied() -> dict[str, list[str]]:
    """What each file copies into the image."""
    lines = CONTAINERFILE.read_text().splitlines()
    section = DEFINITION.read_text().partition("%files\n")[2].partition("\n\n")[0]
    return {
        "Containerfile": [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]],
        "benchmarker.def": [line.split()[0] for line in section.splitlines()],
    }


def test_both_copy_the_same_files():
    one, two = (sorted(names) for names in copied().values())
    assert one == two
    assert all((ROOT / name).exists() for name in one)


@pytest.mark.parametrize("name", TEXTS)
def test_every_extra_exists(name):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"EXTRAS=(\w+(?:,\w+)*)", TEXTS[name])
    assert named
    assert {extra for names in named for extra in names.split(",")} <= extras.keys()


@pytest.mark.parametrize("name", ["README.md", "benchmarker.def"])
def test_every_command_parses(name):
    lines = re.findall(r"(?:podman run .* benchmarker|apptainer run benchmarker\.sif) (.*)", TEXTS[name])
    assert lines
    for line in lines:
        parsed(*shlex.split(line))


@pytest.mark.slow
def test_what_is_copied_is_enough_to_install(tmp_path):
    for name in copied()["Containerfile"]:
        source, target = ROOT / name, tmp_path / "source" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
    ]
    subprocess.run([*words, tmp_path / "source"], check=True)
    assert list(tmp_path.glob("framework_benchmarker-*.whl"))
