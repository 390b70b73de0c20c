"""What is imported is declared: the base by all, an extra by the modules that it serves, and those only when needed."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOMES = {"benchmarker": ROOT, "benchmarker_plugins": ROOT / "plugins", "benchmarker_problems": ROOT / "problems"}

SERVED = {
    "benchmarker.page.drawing*": {"plot"},
    "benchmarker.page.plots": {"plot"},
    "benchmarker.page.render": {"report"},
    "benchmarker.serving.openai": {"serve"},
    "benchmarker.hooks.sql": {"trace"},
    "benchmarker.testing.*": {"pytest"},
    "benchmarker.traces.sql": {"trace"},
    "benchmarker.worker.perf_tests": {"pytest"},
    "benchmarker_plugins.frameworks.exporting": {"onnxruntime", "openvino"},
    "benchmarker_plugins.frameworks.jax": {"jax"},
    "benchmarker_plugins.frameworks.onednn": {"onednn"},
    "benchmarker_plugins.frameworks.onnxruntime": {"onnxruntime"},
    "benchmarker_plugins.frameworks.openvino": {"openvino"},
    "benchmarker_plugins.frameworks.tensorflow": {"tensorflow"},
    "benchmarker_plugins.frameworks.torch": {"torch"},
    "benchmarker_plugins.meters.amdsmi": {"amd"},
    "benchmarker_plugins.meters.nvml": {"nvidia"},
    "benchmarker_problems.libraries.diffusers.torch": {"diffusers"},
    "benchmarker_problems.libraries.keras.jax": {"keras", "jax"},
    "benchmarker_problems.libraries.keras.models": {"keras"},
    "benchmarker_problems.libraries.keras.tensorflow": {"keras", "tensorflow"},
    "benchmarker_problems.libraries.keras.torch": {"keras", "torch"},
    "benchmarker_problems.libraries.timm.torch": {"timm"},
    "benchmarker_problems.libraries.torchvision.torch": {"torchvision"},
    "benchmarker_problems.libraries.transformers.torch": {"transformers"},
    "benchmarker_problems.libraries.memory": {"torch"},
    "benchmarker_problems.libraries.transformers.generation": {"transformers"},
    "benchmarker_problems.libraries.weights": {"diffusers", "timm", "torchvision", "transformers"},
    "benchmarker_problems.*.jax": {"jax"},
    "benchmarker_problems.*.tensorflow": {"tensorflow"},
    "benchmarker_problems.*.torch": {"torch"},
}
"""Extras that modules may need, by pattern."""


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[\w.-]+", each).group()) for each in requirements}


BASE = declared(PROJECT["dependencies"])
EXTRAS = {extra: declared(names) for extra, names in PROJECT["optional-dependencies"].items()}
DISTRIBUTIONS = {module: {normal(name) for name in names} for module, names in packages_distributions().items()}
"""Names of distributions by the module that they install."""


@functools.cache
def modules() -> dict[str, ast.Module]:
    """The trees of all modules of the three packages, by name."""
    trees = {}
    for top, home in HOMES.items():
        for path in sorted((home / top).rglob("*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return trees


@functools.cache
def imports(tree: ast.AST, *, at_once: bool = False) -> tuple[str, ...]:
    """Dotted names that a tree imports, without those for types alone; `at_once`: only those run by its own import."""
    return tuple(_imports(tree, at_once))


def _imports(tree: ast.AST, at_once: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        elif not (at_once and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from _imports(node, at_once)


def distributions(name: str) -> set[str]:
    """What may install the module of a dotted name: nothing for the standard library and for this project."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in HOMES:
        return set()
    return DISTRIBUTIONS.get(top, {normal(top)})


def promised(module: str) -> set[str]:
    """Distributions that a module may import: those of the base, and of the extras that it serves."""
    extras = next((extras for pattern, extras in SERVED.items() if fnmatch(module, pattern)), set())
    return BASE.union(*(EXTRAS[extra] for extra in extras))


def undeclared(module: str, tree: ast.AST, *, at_once: bool = False) -> list[str]:
    """Imports of a module that none of its distributions installs; `at_once`: nor one of the base at its import."""
    allowed = BASE if at_once else promised(module)
    return [name for name in imports(tree, at_once=at_once) if (by := distributions(name)) and not by & allowed]


def at_start(trees: dict[str, ast.Module], *starts: str) -> set[str]:
    """The project's modules that an import of some imports in turn, themselves included."""
    reached: set[str] = set()
    waiting = [*starts]
    while waiting:
        name = waiting.pop()
        while name and name not in trees:  # `from module import name` names what may not be a module
            name = name.rpartition(".")[0]
        if not name or name in reached:
            continue
        reached.add(name)
        waiting += [name.rpartition(".")[0], *imports(trees[name], at_once=True)]
    return reached


def test_each_import_is_declared_by_the_base_or_by_an_extra_that_serves_the_module():
    faults = {name: undeclared(name, tree) for name, tree in modules().items()}
    assert {name: names for name, names in faults.items() if names} == {}


def test_commands_start_with_the_base_alone():
    """An extra is imported when it is needed, where its absence becomes one line with the command that installs it."""
    trees = modules()
    starts = [name for name in trees if name.startswith("benchmarker.cli.") or name.endswith(".__main__")]
    assert len(starts) > 50
    faults = {name: undeclared(name, trees[name], at_once=True) for name in sorted(at_start(trees, *starts))}
    assert {name: names for name, names in faults.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "text", "faults"),
    [
        ("benchmarker.tables.formats", "from markupsafe import escape", ["markupsafe.escape"]),
        ("benchmarker.tables.formats", "def f():\n    with g():\n        import duckdb", ["duckdb"]),
        ("benchmarker.page.render", "import duckdb, jinja2, numpy.typing", ["duckdb"]),
        ("benchmarker_problems.gemm.jax", "import jax.numpy, torch", ["torch"]),
        ("benchmarker.api", "from yaml import load", ["yaml.load"]),
        ("benchmarker.api", "import json\nif TYPE_CHECKING:\n    import yaml", []),
    ],
)
def test_an_import_that_is_not_declared_is_seen(module, text, faults):
    assert undeclared(module, ast.parse(text)) == faults


def test_a_start_follows_what_is_imported_at_once():
    texts = {"benchmarker": "", "benchmarker.a": "from benchmarker.b import f", "benchmarker.c": "import rich"}
    texts["benchmarker.b"] = "def f():\n    import benchmarker.c"
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert at_start(trees, "benchmarker.a") == {"benchmarker", "benchmarker.a", "benchmarker.b"}


def test_the_extras_that_modules_serve_are_declared():
    assert set().union(*SERVED.values()) <= set(EXTRAS)
    names = list(modules())
    assert [pattern for pattern in SERVED if not any(fnmatch(name, pattern) for name in names)] == []


def test_development_installs_what_the_extras_do():
    """`make` installs jax, torch and dev, and runs every test."""
    missing = set().union(*(names for extra, names in EXTRAS.items() if extra not in ("all", "benchmarks")))
    assert missing - EXTRAS["dev"] - EXTRAS["jax"] - EXTRAS["torch"] == set()
