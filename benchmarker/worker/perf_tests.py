"""Perf tests of pytest: a worker runs one of them, and measures where it calls the fixture `measure`.

What the test has made by then, such as fixtures and closures, is there while its function is measured:

    worker     pytest.main   set-up   test ... measure(function, *arguments) ... tear-down   end
                                               check, build, compile, preheat, timed, verify
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shlex
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION, Problem, Source
from benchmarker.files import packages
from benchmarker.formatting import one_line
from benchmarker.hooks import registry
from benchmarker.worker import trial
from benchmarker.worker.launch import inherited
from benchmarker.worker.parent import Parent, Stages

if TYPE_CHECKING:
    from benchmarker.worker.protocol import Events, Task

VARIABLE = "BENCHMARKER_TESTS"
"""The variable that tells a worker which problems are perf tests: JSON of a `Place` by problem."""
TRIAL = "benchmarker_trial"
"""The attribute of pytest's configuration with what the fixture `measure` hands its function over to in a worker."""


class Baseline(Struct, frozen=True):
    """A checkout to measure instead of the user's: its packages, if it was built, and what must come from it."""

    tree: str  #: the checkout
    packages: str  #: the folder of the packages that its build installed; empty if it has none
    user: str  #: the user's own checkout, from which nothing may be imported
    tests: list[str]  #: what are the tests in the checkout, files and folders


class Place(Struct, frozen=True):
    """How a worker gets to a perf test."""

    name: str  #: what follows the file in its node id: `test_sort[256]`
    words: list[str]  #: options of pytest
    given: list[str]  #: the user's command line, of which a trial gets the options that a `conftest.py` adds
    own: list[str]  #: those options, of the command line alone
    folder: str  #: the working directory
    paths: list[str]  #: folders that are searched first for modules
    baseline: Baseline | None = None


def told(places: Mapping[str, Place]) -> AbstractContextManager[None]:
    """Tell workers that are started in the context which problems are perf tests."""
    return inherited(VARIABLE, msgspec.json.encode(places).decode())


def _place(problem: str) -> Place | None:
    """Return the place of a problem, None if it is no perf test."""
    places = os.environ.get(VARIABLE)
    return msgspec.json.decode(places, type=dict[str, Place]).get(problem) if places else None


def command(problem: str) -> str:
    """Return the command that measures a problem again if it is a perf test; otherwise nothing."""
    place = _place(problem)
    words = ["python", "-m", "pytest", "--benchmarker=run"]
    return shlex.join([*words, *place.own, f"{problem}::{place.name}"]) if place else ""


@contextmanager
def lent(
    problem: str, file: Path, case: Mapping[str, Any], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Iterator[type[Problem]]:
    """Give the problem of a function that a test in a file measures.

    `case` has the name of the test as `function`, the values of its parameters as options, and maybe a `framework`. Its
    results are checked by the test. Raises `UserError` if it cannot be measured.
    """

    def inputs(**_: object) -> tuple[Any, ...]:
        return arguments

    options = {name: value for name, value in case.items() if name not in (FUNCTION, "framework")}
    keyword = inspect.Parameter.KEYWORD_ONLY
    several = [inspect.Parameter(name, keyword, default=value) for name, value in options.items()]
    inputs.__signature__ = inspect.Signature(several)  # type: ignore[attr-defined]
    names = {str(case[FUNCTION]): function}
    with registry.lent(names, {"inputs": inputs}, case.get("framework"), any_result=True) as kind:
        kind.source = Source(problem, hashlib.sha256(file.read_bytes()).hexdigest())
        yield kind


def measure(task: Task, events: Events, parent: Parent) -> None:
    """Run a trial: that of a perf test inside of it, any other at once. Any error is sent as its failure."""
    problem = task.cases[0].problem
    place = _place(problem)
    if place is None:
        trial.measure(task, events, parent)
        return
    import pytest

    file = Path(problem).absolute()
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.chdir(place.folder)
    sys.path[:0] = [path for path in place.paths if path not in sys.path]
    if place.baseline and place.baseline.packages:
        packages.put_first(place.baseline.packages)
    plugin = _Trial(task, events, parent, file, place)
    status = pytest.main([*place.words, f"{file}::{place.name}"], plugins=[plugin])
    if not plugin.is_taken:
        why = plugin.failures[0] if plugin.failures else f"pytest ended with status {int(status)}"
        Stages(events).fail("exception", f"the test ended before it called `measure`: {why}"[:300])


class _Trial:
    """The plugin of a worker: it measures the function that the test hands over, once."""

    def __init__(self, task: Task, events: Events, parent: Parent, file: Path, place: Place) -> None:
        self.failures: list[str] = []
        self.is_taken = False
        self._task, self._events, self._parent = task, events, parent
        self._file, self._baseline, self._given = file, place.baseline, place.given

    def pytest_load_initial_conftests(self, early_config: Any, parser: Any) -> None:
        """Note which options there are before those of each `conftest.py`."""
        self._parser, self._others = parser, {*vars(early_config.known_args_namespace)}

    def pytest_cmdline_main(self, config: Any) -> None:
        """Set the options that a `conftest.py` adds as the user gave them; it comes before `pytest_configure`."""
        given = vars(self._parser.parse_known_args(self._given))
        vars(config.option).update({name: given[name] for name in given.keys() - self._others})

    def pytest_configure(self, config: Any) -> None:
        """Let the fixture `measure` find this plugin."""
        setattr(config, TRIAL, self)

    def take(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Measure a function with its arguments; raises `UserError` if it is not the one that was asked for."""
        if self._baseline:
            _refuse_others(self._baseline)
        (case,) = self._task.cases
        with (
            warnings.catch_warnings(),  # what the tests make an error of is no concern of the measurement
            lent(case.problem, self._file, {**case.params, "framework": case.framework}, function, arguments) as kind,
        ):
            warnings.simplefilter("default")
            self.is_taken = True
            trial.measure(self._task, self._events, self._parent, kind)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why the test could not be collected."""
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep why the test failed, or was skipped."""
        if not report.passed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = str(crash.message if crash else report.longrepr[2] if report.skipped else report.longrepr)
            self.failures.append(one_line(lines if crash or report.skipped else lines.strip().splitlines()[-1]))


def _refuse_others(baseline: Baseline) -> None:
    """Raise `UserError` if what is measured is not, or not only, the checkout of the baseline."""
    tree, user, tests = Path(baseline.tree), Path(baseline.user), [Path(each) for each in baseline.tests]
    built = Path(baseline.packages) if baseline.packages else None
    remedy = "say how a revision is built, as in --benchmarker-build='pip install -e .'"
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    has_own = False
    for name, module in sorted(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "").resolve()
        if path.is_relative_to(tree) or (built and path.is_relative_to(built)):
            is_test = any(path.is_relative_to(each) for each in tests)
            has_own = has_own or not (is_test or path.stat().st_size == 0)  # the `__init__.py` of tests may be empty
        elif path.is_relative_to(user) and not any(path.is_relative_to(each) for each in installed):
            raise UserError(f"it imports {name} from your checkout; {remedy}")
    if not has_own:
        raise UserError(f"it imports nothing of the revision but the test; {remedy}")
