"""Suites: curated plans that come with the project, by name.

Each is a plan file (docs/plans.md) in this folder; `index.toml` states its purpose and how long it takes. Some have
weights for a score, in the folder `weights`.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files import toml
from benchmarker.formatting import nearest
from benchmarker.hooks import registry
from benchmarker.planning import plan_file
from benchmarker.planning.factors import Description

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Suite:
    """A plan with a name, its purpose, and how long it takes, in words."""

    name: str
    summary: str
    time: str
    plan: Description


def names() -> list[str]:
    """The names of all suites, in the order of the index."""
    return list(_index())


def find(name: str) -> Suite:
    """The suite with a name. Raises `UserError` with the nearest names if there is none."""
    index = _index()
    if name not in index:
        if Path(name).is_file():
            raise UserError(f"{name} is a file, not the name of a suite; `plan run {name}` runs it")
        known = [*index, *(plugin.name for plugin in registry.registered("suite").values())]
        raise UserError(f"no suite is named {name!r}; {nearest(name, known)}")
    return Suite(name, **index[name], plan=plan_file.read(FOLDER / f"{name}.toml"))


def weights(name: str) -> Path | None:
    """The file with the weights that come with a suite; None if it has none, or there is no such suite."""
    path = FOLDER / "weights" / f"{name}.toml"
    return path if name in _index() and path.is_file() else None


def _index() -> dict[str, dict[str, str]]:
    return toml.load(FOLDER / "index.toml")
