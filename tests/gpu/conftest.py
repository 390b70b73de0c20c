"""Tests on a GPU: their options, their time limits, and the summary of what was measured.

`pytest -m gpu` runs all of them. With `--output`, the summary is written after each test, and a later call goes on with
those that have no verdict yet.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.gpu import Tool

from benchmarker.files import atomic
from benchmarker.formatting import clean, one_line
from benchmarker.machine.description import describe, utc_now
from benchmarker.version import DISTRIBUTION

PLATFORMS = ("cuda", "rocm", "cpu")
LIBRARIES = ("jax", "jaxlib", "flax", "torch", "triton", "transformers", "nvidia-ml-py", "numpy")
FIRST = ("named", "product", "trace", "nvml-counter", "tf32", "loop", "gpt2", "right", "memory", "aa", "two-percent")
"""The most valuable tests, so that a short time on a GPU shows most."""
LAST = "report"
VERDICTS = {"passed": "PASS", "failed": "FAIL", "skipped": "not here"}


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return minutes


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tests on a GPU")
    group.addoption("--device", choices=PLATFORMS, default="cuda", help="cpu rehearses the tests at small sizes.")
    group.addoption("--output", type=Path, metavar="FOLDER", help="Keep all results in FOLDER, and go on from there.")
    group.addoption("--minutes", type=_minutes, help="Begin only tests whose time limit fits into what is left.")
    group.addoption("--again", action="store_true", help="Also run tests that have a verdict in --output.")


def missing(device: str) -> str | None:
    """Return why there is nothing to test: no NVIDIA GPU is listed, if one is asked for."""
    if device != "cuda":
        return None
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "there is no nvidia-smi, which NVIDIA's driver brings"
    except subprocess.TimeoutExpired:
        return "nvidia-smi does not answer within 30 s"
    return None if not listed.returncode and listed.stdout.strip() else "nvidia-smi lists no GPU"


def pytest_configure(config: pytest.Config) -> None:
    folder: Path | None = config.getoption("--output", None)
    if folder is None:
        return
    device = config.getoption("--device")
    if reason := missing(device):
        pytest.exit(f"no test can run: {reason}; --device=cpu rehearses them at small sizes", returncode=2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        pytest.exit(f"cannot write to {folder}: {error.strerror}", returncode=2)
    config.pluginmanager.register(Results(config, folder, device))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """The platform to test on; a test is skipped if this machine has no such device."""
    platform: str = request.config.getoption("--device", "cuda")
    if reason := missing(platform):
        pytest.skip(reason)
    return platform


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests keep what they write."""
    return request.config.getoption("--output", None) or tmp_path_factory.mktemp("gpu")


@pytest.fixture
def tool(
    request: pytest.FixtureRequest, device: str, folder: Path, record_property: Callable[[str, object], None]
) -> Tool:
    """The command line, as one test uses it."""
    limit = limit_s(request.node) * (10 if device == "cpu" else 1)  # which takes longer
    return Tool(device, folder / test_name(request.node), limit, record_property)


def limit_s(item: pytest.Item) -> float:
    """Return the longest time, s, that a test may take: every test on a GPU is marked with one."""
    marker = item.get_closest_marker("gpu")
    assert marker is not None
    limit: float = marker.kwargs["limit_s"]
    return limit


def test_name(item: pytest.Item) -> str:
    """Return a name that can be a folder's: `loop-torch` for `test_loop[torch]`."""
    return re.sub(r"[\W_]+", "-", item.name.removeprefix("test_")).strip("-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the most valuable tests, and end with the report of all."""

    def order(item: pytest.Item) -> int:
        name = test_name(item) if item.get_closest_marker("gpu") else ""
        place = next((place for place, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
        return place + (name == LAST)

    items.sort(key=order)


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """Show the figure beside the verdict (`-v`)."""
    figure = dict(getattr(report, "user_properties", ())).get("figure")
    if report.when != "call" or not figure:
        return None
    return report.outcome, {"passed": "."}.get(report.outcome, "F"), f"{VERDICTS[report.outcome]}  {figure} "


class Results:
    """Keeps what came of each test in a folder, as long as `--minutes` allow, and sums it up."""

    def __init__(self, config: pytest.Config, folder: Path, device: str) -> None:
        self._folder, self._device, self._again = folder, device, config.getoption("--again")
        self._end = time.monotonic() + 60 * (config.getoption("--minutes") or float("inf"))
        self._not_begun: list[str] = []
        try:
            known = json.loads((folder / "summary.json").read_bytes())["entries"]
        except (OSError, ValueError):
            known = []
        self._entries = {entry["name"]: entry for entry in known if entry["device"] == device}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = {name for name, entry in self._entries.items() if entry["verdict"] != "not here" and not self._again}
        config.hook.pytest_deselected(items=[item for item in items if test_name(item) in known])
        items[:] = [item for item in items if test_name(item) not in known]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() + limit_s(item) > self._end:
            self._not_begun.append(test_name(item))
            pytest.skip(f"its limit of {limit_s(item):.0f} s does not fit into the time that is left")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        name = test_name(item)
        if name not in self._not_begun and (report.when == "call" or report.outcome != "passed"):
            figures = dict(item.user_properties)
            self._entries[name] = {
                "name": name,
                "statement": statement(item),
                "verdict": VERDICTS[report.outcome],
                "figure": figures.get("figure", ""),
                "reason": reason(call),
                "device": self._device,
                "seconds": round(call.duration, 1),
                "values": figures.get("values", {}),
            }
            self._write()
        return report

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._write()
            verdicts = {entry["verdict"] for entry in self._entries.values()}
            session.exitstatus = 0 if "PASS" in verdicts and "FAIL" not in verdicts and not self._left() else 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = Counter(entry["verdict"] for entry in self._entries.values())
        texts = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS.values()]
        terminalreporter.write_line(f"\n{', '.join(texts)}; {clean(str(self._folder / 'summary.md'))}")
        if left := self._left():
            terminalreporter.write_line(f"{len(left)} left; the same command continues: {', '.join(left)}")

    def _left(self) -> list[str]:
        return [name for name in self._not_begun if name not in self._entries]

    def _write(self) -> None:
        summary = {
            "made_at": utc_now(),
            "machine": msgspec.to_builtins(describe()),
            "versions": versions(),
            "entries": list(self._entries.values()),
            "left": self._left(),
        }
        atomic.write(self._folder / "summary.json", json.dumps(summary, indent=1).encode())
        atomic.write(self._folder / "summary.md", as_markdown(summary).encode())


def statement(item: pytest.Function) -> str:
    """Return what a test shows: the first line of its docstring, with the values of its parameters."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return (inspect.getdoc(item.function) or "").partition("\n")[0].rstrip(".").format(**params)


def reason(call: pytest.CallInfo[None]) -> str:
    """Return why a test failed or was skipped, in a line without control characters."""
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    text = error.msg if isinstance(error, (pytest.fail.Exception, pytest.skip.Exception)) else call.excinfo.exconly()
    return clean(one_line(str(text)))[:500]


def versions() -> dict[str, str]:
    """Return the versions of this project and of the libraries that are installed."""
    installed = {}
    for name in (DISTRIBUTION, *LIBRARIES):
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def as_markdown(summary: dict[str, Any]) -> str:
    """Return the summary as a page: the machine, the versions, and a table of the tests."""
    machine = summary["machine"]
    devices = [f"{gpu['name']}, driver {gpu['driver']}" for gpu in machine["gpus"]] or [machine["cpu"]["model"]]
    libraries = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    lines = [f"# Tests on {devices[0]}", "", f"{summary['made_at']}; {libraries}.", ""]
    lines += ["| test | verdict | figure | s |", "| --- | --- | --- | --- |"]
    for entry in summary["entries"]:
        figure = "; ".join(filter(None, (entry["figure"], entry["reason"]))).replace("|", "\\|")
        test = f"{entry['statement']} (`{entry['name']}`)"
        lines.append(f"| {test} | {entry['verdict']} | {figure} | {entry['seconds']:.0f} |")
    if summary["left"]:
        lines += ["", f"Not run yet: {', '.join(summary['left'])}."]
    return "\n".join(lines) + "\n"
