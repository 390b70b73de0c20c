"""What the distribution declares."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_entry_point_names_a_module_of_the_tree():
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["benchmarker"]
    for address, module in entries.items():
        top = "plugins" if module.startswith("benchmarker_plugins") else "problems"
        path = ROOT / top / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), address
