"""The plugin of pytest: the fixture `measure`, its mark and its options.

pytest loads it wherever this project is installed, so it imports nothing before it is asked to measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarker.testing import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from benchmarker.testing.session import PerfTests


_OPTIONS = {
    "baseline": ("RESULT|REVISION", "compare with a folder of results, an archive or a git revision"),
    "build": ("COMMAND", "what a shell executes in the checkout of the revision: 'pip install -e .'"),
    "results": ("FOLDER", "where records are stored [results]"),
    "trials": ("N", "processes that measure a test, unless a revision is compared [10]"),
    "max-rounds": ("N", "most rounds of a comparison with a revision [30]"),
    "delta": ("SHARE", "largest difference that counts as none [2%]"),
    "alpha": ("SHARE", "accepted probability of a false verdict, for all tests together [5%]"),
}
_KEY: pytest.StashKey[PerfTests] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("benchmarker", "perf tests, which use the fixture measure")
    group.addoption("--benchmarker", choices=("run", "compare"), help="measure them, or also compare with a baseline")
    for name, (value, text) in _OPTIONS.items():
        group.addoption(f"--benchmarker-{name}", metavar=value, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and begin if it is asked for."""
    config.addinivalue_line("markers", f"{MARK}(**settings): how `measure` measures a test: trials, seconds, ...")
    mode = config.getoption("--benchmarker")
    given = {name: value for name in _OPTIONS if (value := config.getoption(f"--benchmarker-{name}")) is not None}
    if mode is None:
        if given:
            raise pytest.UsageError(f"--benchmarker-{next(iter(given))} needs --benchmarker=run or compare")
        return
    if config.getoption("numprocesses", None) or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("two measurements at once disturb each other: --benchmarker needs -n 0")
    from benchmarker.api.errors import UserError
    from benchmarker.testing.session import PerfTests

    try:
        config.stash[_KEY] = PerfTests.of(config, mode, given)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the perf tests, which are judged together, and prepare what they are compared with."""
    if tests := session.config.stash.get(_KEY, None):
        from benchmarker.api.errors import UserError

        number = sum("measure" in getattr(item, "fixturenames", ()) for item in session.items)
        try:
            tests.begin(0 if session.config.option.collectonly else number)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a perf test that has ended well without a measurement, if one is asked for."""
    yield
    tests = item.config.stash.get(_KEY, None)
    if tests and "measure" in getattr(item, "fixturenames", ()) and item.nodeid not in tests.outcomes:
        pytest.fail("nothing was measured: the test takes `measure`, and does not call it", pytrace=False)


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that measures `function(*arguments)`, and returns its result.

    Without --benchmarker, it only calls the function.
    """
    calls = 0

    def measure(function: object, *arguments: Any) -> Any:
        __tracebackhide__ = True
        nonlocal calls
        if not callable(function):
            remedy = "pass a function and then its arguments: measure(sort, data), not measure(sort(data))"
            pytest.fail(f"`measure` got a value of type {type(function).__name__}: {remedy}", pytrace=False)
        calls += 1
        if calls > 1:
            pytest.fail("`measure` is called twice: split the test, or let parameters be its cases", pytrace=False)
        if trial := getattr(request.config, "benchmarker_trial", None):
            trial.take(function, arguments)
        result = function(*arguments)
        if tests := request.config.stash.get(_KEY, None):
            tests.measure(request.node, function, arguments)
        return result

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured, also after an interrupt."""
    if tests := terminalreporter.config.stash.get(_KEY, None):
        tests.summarise(terminalreporter)
