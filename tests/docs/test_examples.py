"""The packages in examples/, as a third party ships them: installed beside the core, which is not touched."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


@dataclass(frozen=True)
class Example:
    """An example: its addresses, a problem that it takes part in, and what is measured of it."""

    folder: str
    distribution: str
    addresses: frozenset[str]
    problem: str
    frameworks: tuple[str, ...]
    measured: str
    size: tuple[str, ...]
    modes: frozenset[str]


SCIPY = Example(
    folder="framework-plugin",
    distribution="benchmarker-scipy",
    addresses=frozenset({"framework.scipy", "workload.gemm.scipy"}),
    problem="gemm",
    frameworks=("numpy", "scipy"),
    measured="scipy",
    size=("--m=128", "--n=96", "--k=64"),
    modes=frozenset({"inference"}),
)
LOGREG = Example(
    folder="problem-plugin",
    distribution="benchmarker-logreg",
    addresses=frozenset({"problem.logreg", "workload.logreg.numpy", "workload.logreg.torch"}),
    problem="logreg",
    frameworks=("numpy", "torch"),
    measured="numpy",
    size=("--mode=training", "--batch-size=64", "--features=128", "--classes=10"),
    modes=frozenset({"inference", "training"}),
)
EVERY = pytest.mark.parametrize("example", [SCIPY, LOGREG], ids=lambda example: example.folder)


def call(*args: object, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(arg) for arg in args],
        cwd=cwd,
        env={**clean, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )


def pip(*args: object, cwd: Path, python: Path | None = None) -> None:
    of = ("--python", python) if python else ()
    done = call(sys.executable, "-m", "pip", *of, *args, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


def make_wheel(source: Path, target: Path) -> Path:
    pip("wheel", *OFFLINE, "--wheel-dir", target, source, cwd=source)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def core_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository, built from a copy of its source, so that no earlier build leaks into it."""
    source = tmp_path_factory.mktemp("core")
    for folder in ("benchmarker", "plugins", "problems"):
        shutil.copytree(ROOT / folder, source / folder, ignore=NOT_SOURCE)
    for file in ("pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, source)
    return make_wheel(source, tmp_path_factory.mktemp("core-wheel"))


def make_environment(folder: Path, core_wheel: Path) -> Path:
    """A fresh environment with the core's wheel in it, which finds all other libraries where this Python has them.

    A folder that a .pth file names is searched last, and the .pth files within it are not read: a core that is
    installed there as editable is not seen.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    asked = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    (Path(asked.stdout.strip()) / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip("install", *OFFLINE, "--ignore-installed", core_wheel, python=python, cwd=folder)
    return python


def json_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_wheel_is_complete(core_wheel: Path) -> None:
    folders = {
        "benchmarker": ".",
        "plugins/benchmarker_plugins": "plugins",
        "problems/benchmarker_problems": "problems",
    }
    source = {
        str(file.relative_to(ROOT / base))
        for folder, base in folders.items()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    with zipfile.ZipFile(core_wheel) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == source


@pytest.mark.slow
@pytest.mark.parametrize("how", ["editable", "wheel"])
@EVERY
def test_an_example_works_where_it_is_installed(example: Example, how: str, core_wheel: Path, tmp_path: Path) -> None:
    if find_spec(example.measured) is None:
        pytest.skip(f"{example.measured} is not installed")
    source = tmp_path / "source"
    shutil.copytree(EXAMPLES / example.folder, source, ignore=NOT_SOURCE)
    python = make_environment(tmp_path / "venv", core_wheel)
    what = ("--editable", source) if how == "editable" else (make_wheel(source, tmp_path / "wheels"),)
    pip("install", *OFFLINE, *what, python=python, cwd=tmp_path)
    benchmarker = python.parent / "benchmarker"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    listed = json_of(call(benchmarker, "list", "--json", cwd=elsewhere))
    ours = [plugin for plugin in listed if plugin["distribution"] == example.distribution]
    assert {f"{plugin['kind']}.{plugin['name']}" for plugin in ours} == example.addresses
    usable = {plugin["name"] for plugin in listed if plugin["kind"] == "framework" and plugin["available"]}

    frameworks = [name for name in example.frameworks if name in usable]
    assert example.measured in frameworks
    checked = json_of(
        call(
            benchmarker,
            "check",
            f"--problem={example.problem}",
            f"--framework={','.join(frameworks)}",
            "--json",
            cwd=elsewhere,
        )
    )
    assert checked["ok"]
    found = {(finding["framework"], finding["mode"]) for finding in checked["checks"] if finding["ok"]}
    assert found == {(name, mode) for name in frameworks for mode in example.modes}

    measured = json_of(
        call(
            benchmarker,
            "run",
            f"--framework={example.measured}",
            f"--problem={example.problem}",
            *example.size,
            "--blocks=3",
            "--seconds=1",
            "--json",
            cwd=elsewhere,
        )
    )
    assert [record["status"] for record in measured] == ["ok"]
    assert 1 <= len(measured[0]["blocks"]["duration_ns"]) <= 3
    assert measured[0]["metrics"]["samples_per_s"]["value"] > 0
    assert measured[0]["software"]["commit"] is None

    assert json_of(call(benchmarker, "validate", "results", "--json", cwd=elsewhere)) == {
        "valid": 1,
        "missing": 0,
        "faults": [],
        "notes": [],
    }
    (stored,) = (file for file in elsewhere.glob("results/*/*.json") if file.name != "plan.json")
    schema = json_of(call(benchmarker, "validate", "--schema", cwd=elsewhere))
    jsonschema.validate(json.loads(stored.read_text()), schema)


QUEUED = """
problem = "gemm"
framework = "numpy"
m = 64
n = 64
k = 64
trials = 2
[measuring]
power = "none"
blocks = 2
seconds = 1
"""


@pytest.mark.slow
def test_the_launcher_of_the_example_runs_one_job_at_a_time(core_wheel: Path, tmp_path: Path) -> None:
    if shutil.which("flock") is None:
        pytest.skip("flock of util-linux is not installed")
    source = tmp_path / "source"
    shutil.copytree(EXAMPLES / "launcher-plugin", source, ignore=NOT_SOURCE)
    python = make_environment(tmp_path / "venv", core_wheel)
    pip("install", *OFFLINE, make_wheel(source, tmp_path / "wheels"), python=python, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "plan.toml").write_text(QUEUED)
    env = {"TMPDIR": str(tmp_path)}

    def benchmarker(*words: str) -> Any:
        return json_of(call(python.parent / "benchmarker", *words, "--json", cwd=elsewhere, env=env))

    listed = [plugin for plugin in benchmarker("list", "launchers") if plugin["distribution"] == "benchmarker-queue"]
    assert [(plugin["name"], plugin["available"]) for plugin in listed] == [("queue", True)]
    with (tmp_path / "benchmarker-queue-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = [benchmarker("submit", "plan.toml", "--launcher=queue", "-o", "name=test") for _ in range(3)]
        assert [job["state"] for job in benchmarker("jobs")] == ["pending"] * 3
        launchers = "from benchmarker.hooks.launchers import load_launcher"
        done = call(python, "-c", f"{launchers}; load_launcher('queue').cancel({made[2]['job']!r})", cwd=elsewhere)
        assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 120
    while any(job["state"] in ("pending", "running") for job in benchmarker("jobs")):
        assert time.monotonic() < deadline
    jobs = benchmarker("jobs")
    assert [(job["state"], job["done"], job["planned"]) for job in jobs] == [("done", 2, 2)] * 2 + [
        ("stopped", 0, None)
    ]
    records = [
        [json.loads(file.read_text()) for file in elsewhere.glob(f"results/{each['run_id']}/2*.json")] for each in made
    ]
    told = [{record["allocation"]["job"] for record in each} for each in records]
    assert told == [{made[0]["job"]}, {made[1]["job"]}, set()]
    spans = sorted((job["attempts"][0]["started_at"], job["attempts"][0]["ended_at"]) for job in jobs[:2])
    assert spans[0][1] <= spans[1][0]
    refused = call(python.parent / "benchmarker", "submit", "plan.toml", "--launcher=queue", "-o", "x=1", cwd=elsewhere)
    assert refused.stderr == "benchmarker: error: launcher.queue has no option x; there is: name\n"


def test_two_distributions_with_one_address_are_refused(tmp_path: Path) -> None:
    for name in ("first-plugin", "second-plugin"):
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[benchmarker]\nframework.same = same\n")
    done = call(sys.executable, "-m", "benchmarker", "list", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "framework.same" in line
    assert "first-plugin" in line
    assert "second-plugin" in line


@pytest.mark.parametrize(
    ("page", "folder"),
    [("writing-a-framework.md", SCIPY.folder), ("writing-a-problem.md", LOGREG.folder)],
)
def test_a_tutorial_shows_every_file_of_its_example_as_it_is(page: str, folder: str) -> None:
    """A block that shows a file has the line "File `PATH`:" above it, with an empty line between."""
    text = (ROOT / "docs" / page).read_text()
    shown = re.findall(r"^File `([^`]+)`:\n\n```\w+\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(shown) == len(re.findall(r"^File `", text, flags=re.MULTILINE)), "a file's name without its block"
    files = {
        str(file.relative_to(ROOT)): file.read_text()
        for file in (EXAMPLES / folder).rglob("*")
        if file.suffix in (".py", ".toml") and not {"build", "__pycache__"} & set(file.parts)
    }
    assert sorted(path for path, _ in shown) == sorted(files)
    for path, block in shown:
        assert block == files[path], f"docs/{page} shows another {path} than there is: copy the file into the block"


@pytest.mark.slow
def test_the_study_of_einsum_and_matmul_counts_each_product(cli, tmp_path):
    """The example's plan at a small size: each product of attention, layers x steps times, in every record."""
    text = (EXAMPLES / "einsum-vs-matmul/plan.toml").read_text()
    small = 'n_layer = 2\nd_model = 24\nn_head = 2\nvocab_size = 97\nsize = "small"'
    text = text.replace('size = "small"', small).replace("profile_steps = 50", "profile_steps = 3")
    text = text.replace("trials = 10", "trials = 1").replace("seq_len = 64", "seq_len = 8")
    (tmp_path / "plan.toml").write_text(text)
    done = cli("plan", "run", "plan.toml")
    assert done.returncode == 0, done.stderr
    assert "incomplete" not in done.stderr
    shown = json.loads(cli("profile", "scopes", "results", "--json").stdout)
    assert len({line["result"] for line in shown}) == 4
    for scope in ("attn_q_k", "attn_att_v"):
        counts = [(line["ran"], line["expected"]) for line in shown if line["scope"] == scope]
        assert counts == [(6, 6)] * 4
