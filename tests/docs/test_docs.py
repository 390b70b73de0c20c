"""The pages in docs/ against the code that they describe."""

from __future__ import annotations

import ast
import gzip
import inspect
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import profiles
from support.commands import parsed

import benchmarker
from benchmarker import NoMeterError
from benchmarker.hooks import registry, specs

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def hooks() -> Iterator[str]:
    """Name, arguments and result of every hook, as its source has them."""
    for node in ast.parse(inspect.getsource(specs)).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            assert node.returns is not None
            yield f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"


def test_every_hook_stands_in_plugins_md_as_it_is() -> None:
    assert re.findall(r"^### `(.+)`$", page("plugins.md"), flags=re.MULTILINE) == list(hooks())


def test_every_public_name_stands_once_in_api_md() -> None:
    named = re.findall(r"^::: benchmarker\.(\w+)$", page("api.md"), flags=re.MULTILINE)
    assert sorted(named) == sorted(set(benchmarker.__all__) - {"__version__"})


@pytest.mark.slow
def test_the_program_of_api_md_runs_and_compares(tmp_path: Path) -> None:
    block, _ = re.findall(r"^```python\n(.*?)^```", page("api.md"), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(block)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith("fp32 in numpy on cpu")
    assert re.search(r"^\['(faster|slower|same|undecided)'\]$", done.stdout, flags=re.MULTILINE)
    drawn = (tmp_path / "gemm.png").exists() and (tmp_path / "times.csv").exists()
    assert drawn or "step_time_median_s" in done.stdout


def test_the_profile_of_api_md_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, block = re.findall(r"^```python\n(.*?)^```", page("api.md"), flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("trace.json.gz").write_bytes(gzip.compress(profiles.torch_json()))
    Path("script.py").write_text(block)
    runpy.run_path("script.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["category", "count", "busy"]
    assert lines[-2] == "100% of the busy time are matrix products"
    assert lines[-1] in ("host-bound", "kernel-bound")


def test_every_kind_of_address_stands_in_plugins_md() -> None:
    kinds = re.findall(r"^\| `(\w+)\.[\w.]+` \|", page("plugins.md"), flags=re.MULTILINE)
    assert sorted(kinds) == sorted(registry.KINDS)


def test_tables_of_the_pages_are_made_from_the_code() -> None:
    """Making them raises ValueError if a field of a record or of a plan has no meaning."""
    made = runpy.run_path(str(DOCS / "hooks.py"))["on_page_markdown"]
    rows = [*made(page("records.md")).splitlines(), *made(page("measuring.md")).splitlines()]
    assert "| `check.output` | string | name of that output, or `one element of` it |" in rows
    assert "| `energy.sensors[].wraps` | integer | how often the counter wrapped to zero; wraps are corrected |" in rows
    assert "| `suite.sha256` | string | SHA-256 of its cases, trials and design |" in rows
    assert "| `suite.case` | string, null | name that it gives to the case; null if none |" in rows
    assert "| `machine.cpu.smt` | boolean, null with a reason | whether SMT is active |" in rows
    assert "| `seed` | integer | the seed of the random order |" in rows
    assert "| `int8` | int8 | int8 | int32 | 0 |" in rows
    worker = made(page("worker.md")).splitlines()
    assert "| `seed` | integer | seed of the order in a duet and of the local phase |" in worker
    assert "| `StageEnded` | `stage`: string; `seconds`: number | A stage has ended, after so many seconds. |" in worker
    assert "| a line that it sends | 64 MiB |" in worker


def test_the_program_of_worker_md_hears_the_stages_in_the_order_of_the_page(tmp_path: Path) -> None:
    text = page("worker.md")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "parent.py").write_text(block)
    done = subprocess.run([sys.executable, tmp_path / "parent.py"], capture_output=True, text=True, check=True)
    heard = [line.split(" ", 1) for line in done.stdout.splitlines()]
    (order,) = re.findall(r"^\| `trial` \| in the stages (.*?):", text, flags=re.MULTILINE)
    stages = [stage for stage in re.findall(r"`([\w-]+)`", order) if stage not in ("tokens", "device", "local")]
    assert [stage for kind, stage in heard if kind == "StageBegan"] == stages
    assert [stage for kind, stage in heard if kind == "StageEnded"] == ["python", *stages]
    assert heard[-1] == ["Done", ""]


def test_the_meter_of_plugins_md_reads() -> None:
    section = page("plugins.md").partition("### `make_meter")[2]
    code = re.search(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert code
    names: dict[str, Any] = {"board_is_here": lambda: True, "watts_of_the_board": lambda: 250.0}
    exec(code[1], names)
    meter = names["make_meter"](None)
    assert (len(meter.channels), meter.read()) == (1, (250.0,))
    names["board_is_here"] = lambda: False
    with pytest.raises(NoMeterError, match="no such board"):
        names["make_meter"](None)


def test_the_page_of_problems_has_every_problem_and_its_frameworks() -> None:
    page = (DOCS / "problems.md").read_text().splitlines()
    frameworks = {"blas": "BLAS", "jax": "JAX", "onednn": "oneDNN", "torch": "PyTorch"}
    frameworks |= {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "tensorflow": "TensorFlow"}
    for address in registry.registered("problem"):
        name = address.partition(".")[2]
        (line,) = [line for line in page if line.startswith(f"| `{name}` |")]
        assert {each for each in frameworks if frameworks[each] in line} == {*registry.implementing(name)} - {"numpy"}


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md"]
PAGES += sorted(ROOT.glob("examples/*/README.md"))
README = PAGES[0].read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def commands():
    """Every command line of this tool in a shell block of any page, continued lines joined."""
    for page in PAGES:
        for language, body in FENCE.findall(page.read_text()):
            if language not in ("sh", "console"):
                continue
            for line in body.replace("\\\n", " ").splitlines():
                if found := re.match(r"(?:\$ )?(?:python -m )?benchmarker (.*)", line):
                    yield pytest.param(shlex.split(found[1], comments=True), id=f"{page.name}: {line}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_on_a_page_parses(words, monkeypatch):
    monkeypatch.chdir(ROOT / "examples" / "own-code")
    if "--help" not in words and not {"scipy", "logreg"} & set(re.findall(r"\w+", " ".join(words))):
        parsed(*words)


def test_the_help_on_the_pages_is_what_is_printed(program):
    found = [
        each
        for page in PAGES
        for each in re.findall(
            r"^```console\n\$ python -m benchmarker ([^\n]*--help)\n(.*?)^```", page.read_text(), re.M | re.S
        )
    ]
    assert [words for words, _ in found] == ["--help", "table --help"]
    for words, text in found:
        assert program(*shlex.split(words), env={"COLUMNS": "80", "PYTHONPATH": ""}).stdout == text


def test_make_targets_on_the_page_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^(?:\$ )?make ([a-z-]+)", README, re.M))
    assert {"bench", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    made, _ = runpy.run_path(str(DOCS / "hooks.py"))["reports"](page.read_text())
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert target in made or (page.parent / target).exists(), target
