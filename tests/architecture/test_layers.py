"""What may import what: an arrow against the order below, or into the core from outside, fails."""

import ast
import functools
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import benchmarker

ROOT = Path(__file__).parents[2]

LAYERS = [
    "api",
    "files",
    "stats",
    "records",
    "hooks",
    "machine",
    "power",
    "traces",
    "worker",
    "agent",
    "planning",
    "running",
    "serving",
    "comparing",
    "tables",
    "roofline",
    "bundles",
    "procurement",
    "fleet",
    "page",
    "display",
    "library",
    "testing",
    "cli",
]
"""Packages of the core by stage; each imports only itself and what stands before it."""
ANYWHERE = {"version", "formatting", "guard"}
"""Modules at the top that import nothing of the core."""
OUTERMOST = {"__main__"}
"""Modules at the top that no package imports."""
FRAMEWORKS = {"jax", "jaxlib", "flax", "optax", "torch", "pynvml", "amdsmi"}
PUBLIC = {"benchmarker", "benchmarker_plugins", "benchmarker_problems"}


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def imports(text: str) -> list[tuple[int, str]]:
    """Line and dotted name of all that is imported, at any depth; `from a import b` gives `a.b`."""
    imported = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            imported += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return imported


def against_the_order(package: str, text: str) -> list[str]:
    """Imports of a module of a package that point to a later one, or to the top."""
    found = []
    for line, name in imports(text):
        root, _, rest = name.partition(".")
        if root == "benchmarker":
            top = rest.partition(".")[0]
            known = top in LAYERS and LAYERS.index(top) <= LAYERS.index(package)
            if not known and top not in ANYWHERE:
                found.append(f"line {line}: {name}")
    return found


def test_the_layers_are_the_packages_that_there_are():
    found = {path.name for path in (ROOT / "benchmarker").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert found == set(LAYERS)
    alone = {path.stem for path in (ROOT / "benchmarker").glob("*.py")}
    assert alone == {"__init__"} | ANYWHERE | OUTERMOST


def test_each_package_imports_only_those_before_it():
    found = {}
    for path in modules("benchmarker"):
        package, *rest = path.relative_to(ROOT / "benchmarker").parts
        if rest:
            found[path] = against_the_order(package, path.read_text())
        elif path.stem in ANYWHERE:
            found[path] = [name for _, name in imports(path.read_text()) if name.startswith("benchmarker")]
    assert {path: arrows for path, arrows in found.items() if arrows} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from benchmarker import worker",
        "from benchmarker.worker import timing",
        "from benchmarker.worker.timing import Stepper",
        "import benchmarker.cli",
        "from benchmarker import Record",
        "from benchmarker import frames",
        "def f():\n    from benchmarker.page import render",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from benchmarker.worker.bench import Bench",
    ],
)
def test_an_arrow_against_the_order_is_seen(text):
    assert len(against_the_order("api", text)) == 1


def outside() -> set[str]:
    """Names of `benchmarker` that plugins, problems and examples import."""
    return {
        name.removeprefix("benchmarker.")
        for path in modules("plugins", "problems", "examples")
        for _, name in imports(path.read_text())
        if name.startswith("benchmarker.")
    }


def test_plugins_problems_and_examples_import_public_names_only():
    assert outside() <= set(benchmarker.__all__)


def test_the_public_names_are_there():
    assert all(hasattr(benchmarker, name) for name in benchmarker.__all__)


def test_the_core_imports_no_framework_and_no_plugin():
    barred = FRAMEWORKS | PUBLIC - {"benchmarker"}
    found = {
        path: barred & {name.partition(".")[0] for _, name in imports(path.read_text())}
        for path in modules("benchmarker")
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_the_documentation_lists_the_packages_in_order():
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE) == LAYERS


def circle(texts: Mapping[str, str]) -> list[str]:
    """The modules of a circle of imports at any depth, those for types among them; empty if there is none."""
    arrows: dict[str, set[str]] = {name: set() for name in texts}
    for module, text in texts.items():
        for _, name in imports(text):
            imported = next((part for part in (name, name.rpartition(".")[0]) if part in texts), module)
            arrows[module] |= {imported} - {module}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_imports_go_in_a_circle():
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules("benchmarker")}
    assert circle({name.removesuffix(".__init__"): path.read_text() for path, name in names.items()}) == []


def test_a_circle_is_seen():
    texts = {"a": "from b import f", "b": "def f():\n    from p.c import g", "p.c": "from p import d"}
    assert circle(texts) == []
    texts["p.d"] = "if TYPE_CHECKING:\n    import b"
    assert sorted(set(circle(texts))) == ["b", "p.c", "p.d"]
