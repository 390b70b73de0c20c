"""What may import what, and what is packaged."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_folder_of_code_is_packaged():
    """A folder left off the list works when installed editable, and is missing from the wheel."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = set()
    for top, name in (
        ("benchmarker", "benchmarker"),
        ("plugins", "benchmarker_plugins"),
        ("problems", "benchmarker_problems"),
    ):
        for init in (ROOT / top).rglob("__init__.py"):
            found.add(".".join([name, *init.parent.relative_to(ROOT / top).parts]))
    assert listed == found


def test_the_core_imports_no_framework_and_no_plugin():
    barred = {
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "torch",
        "pynvml",
        "amdsmi",
        "benchmarker_plugins",
        "benchmarker_problems",
    }
    for path in (ROOT / "benchmarker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not barred & {name.partition(".")[0] for name in names}, path


def test_imports_point_one_way():
    """api < hookspecs < registry < plan, worker < cli: none imports one to its right."""
    order = [
        "errors",
        "precision",
        "api",
        "record",
        "hookspecs",
        "registry",
        "params",
        "plan",
        "worker",
        "execute",
        "cli",
    ]
    rank = {f"benchmarker.{name}": position for position, name in enumerate(order)}
    for name in order[:-1]:
        tree = ast.parse((ROOT / "benchmarker" / f"{name}.py").read_text())
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module in rank:
                assert rank[node.module] < rank[f"benchmarker.{name}"], (name, node.module)
