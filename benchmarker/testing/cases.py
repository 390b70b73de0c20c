"""From a perf test to its case: its name, its parameters, the settings of its marks, the precision of its arguments."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION, IN_PROCESS
from benchmarker.hooks import parameters
from benchmarker.machine import gpus
from benchmarker.planning.build import case_here
from benchmarker.planning.capabilities import usable
from benchmarker.testing import MARK
from benchmarker.worker.perf_tests import Place, lent

if TYPE_CHECKING:
    import pytest

    from benchmarker.api.case import Case

USUAL: Mapping[str, Any] = {"seconds": 1.0, "power": "none"}
"""Settings that have other defaults than in a run, because there are many tests."""
SETTINGS = (
    *("trials", "seconds", "blocks", "warmup_steps", "preheat", "preheat_max_s", "cache", "timeout_s"),
    *("precision", "framework", "device", "threads"),
)
"""What a mark may set."""
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
"""Types of arrays, and the precisions of that name."""
_LIBRARIES = ("numpy", "torch", "jax", "jaxlib")


@dataclass(frozen=True, slots=True)
class PerfTest:
    """A perf test: its file, what follows that in its node id, its name without parameters, and its settings.

    `settings` are those of its case, the values of its parameters among them; `trials` is None if no mark sets it.
    """

    file: Path
    node: str
    name: str
    settings: Mapping[str, Any]
    trials: int | None

    @classmethod
    def of(cls, item: pytest.Item) -> PerfTest:
        """Return that of an item; raises `UserError` if a mark is wrong."""
        settings: dict[str, Any] = {}
        for mark in reversed([*item.iter_markers(MARK)]):
            settings |= _settings(mark)
        trials = settings.pop("trials", None)
        if trials is not None and (type(trials) is not int or trials < 1):
            raise UserError(f"@pytest.mark.{MARK}(trials={trials!r}): not a number from 1")
        node = item.nodeid.partition("::")[2]
        spec = getattr(item, "callspec", None)
        name = node.removesuffix(f"[{spec.id}]") if spec else node
        cases = _cases(spec.params, spec.id) if spec else {}
        return cls(item.path, node, name, {**USUAL, **settings, **cases}, trials)

    def case(self, problem: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Case:
        """Return the case of its function, as that of a problem; raises `UserError` if it cannot be measured."""
        own = {name: value for name, value in self.settings.items() if name not in parameters.settings()}
        settings = {"precision": _precision(arguments), **self.settings}
        with lent(problem, self.file, {FUNCTION: self.name, **own}, function, arguments) as kind:
            (framework,) = kind.frameworks or ()
            ability = usable(IN_PROCESS, [framework], gpus.environment(None, {}, 1))[framework]
            settings |= {"problem": problem, "framework": framework, FUNCTION: self.name}
            return case_here(settings, kind, ability)

    def problem(self, folder: Path) -> str:
        """Return the name of its problem in a working directory: its file."""
        return str(self.file.relative_to(folder) if self.file.is_relative_to(folder) else self.file)

    def place(self, config: pytest.Config) -> Place:
        """Return how a worker gets to it in the checkout of the user."""
        words = ["-s", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--assert=plain"]
        words += [word for plugin in config.getoption("plugins") for word in ("-p", plugin)]
        words += [f"--import-mode={config.getoption('importmode')}", f"--rootdir={config.rootpath}"]
        words += ["-c", str(config.inipath)] if config.inipath else []
        overridden = [*(config.getoption("override_ini") or ()), "addopts="]
        overridden += ["timeout=0"] if config.pluginmanager.hasplugin("timeout") else []
        words += [word for each in overridden for word in ("-o", each)]
        folder = config.invocation_params.dir
        given = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(os.fspath, config.invocation_params.args)]
        return Place(
            name=self.node,
            words=words,
            given=[*config.getini("addopts"), *given],
            own=_own(given, config),
            folder=str(folder),
            paths=[str(folder / path) for path in sys.path],
        )


def _own(given: Iterable[str], config: pytest.Config) -> list[str]:
    """Return the words of a command line that are options of a `conftest.py`, with their values."""
    names = vars(config.option).keys() - vars(config.known_args_namespace).keys()
    found, is_own = [], False
    for word in given:
        if word.startswith("-"):
            is_own = word.partition("=")[0].lstrip("-").replace("-", "_") in names
        if is_own and word not in config.args:
            found.append(word)
    return found


def _settings(mark: pytest.Mark) -> Mapping[str, Any]:
    """Return the settings of a mark; raises `UserError` if one is unknown, or has no name."""
    if mark.args:
        raise UserError(f"@pytest.mark.{MARK}({mark.args[0]!r}): name what it sets, as in trials=20")
    if unknown := sorted(mark.kwargs.keys() - {*SETTINGS}):
        raise UserError(f"@pytest.mark.{MARK} has no {unknown[0]}; it has: {', '.join(SETTINGS)}")
    return mark.kwargs


def _cases(values: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """Return the parameters of a test as options of its problem; their id, if a value has no short name."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        plain = value.item() if isinstance(value, np.generic) else value
        is_number = isinstance(plain, bool | int | str) or (isinstance(plain, float) and np.isfinite(plain))
        if not is_number and not hasattr(plain, "__name__"):
            return {"id": identity}
        other = f"test_{name}" if name in parameters.settings() or name == FUNCTION else name
        named[other] = plain if is_number else str(plain.__name__)
    return named


def _precision(arguments: tuple[Any, ...]) -> str:
    """Return the precision that keeps the types of arguments; raises `UserError` if there is none."""
    found: dict[str, None] = {}
    for value in _arrays(arguments):
        if type(value).__module__.partition(".")[0] not in _LIBRARIES:
            what = type(value).__name__
            raise UserError(f"a {what} would become an array; keep it with measure(lambda: function(...))")
        found[str(value.dtype).removeprefix("torch.")] = None
    floats = [dtype for dtype in TYPES if dtype in found]
    if len(floats) > 1:
        which = " and ".join(floats)
        raise UserError(f"arguments are {which}, and have one precision; keep them with measure(lambda: function(...))")
    return TYPES[floats[0]] if floats else "fp32"


def _arrays(value: Any) -> Iterator[Any]:
    """Yield what is an array, or may be taken for one, in nested tuples, lists and dictionaries."""
    if isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _arrays(each)
    elif hasattr(value, "dtype") and hasattr(value, "__array__"):
        yield value
