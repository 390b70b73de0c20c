"""Fixtures that all tests share."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.toy import ENTRY_POINTS, TOY, install

from benchmarker.cli import main
from benchmarker.hooks import registry
from benchmarker.planning import capabilities
from benchmarker.records import ceilings

# Tests run side by side, each with workers that use all cores: threads that wait must leave the cores to others,
# where libraries would let them spin, so that tests take up to four times as long.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}

# Hundreds of processes are started: modules are compiled once, and not by each of them, wherever Python may write.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Exempt the frameworks that were imported, a million objects, from each collection of garbage during the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the workers of this session have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def abilities_folder(session_folder: Path) -> Path:
    """Where it is kept what frameworks support: one that starts in seconds is asked once for all tests."""
    return session_folder / "abilities"


@pytest.fixture(scope="session")
def _new_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for each test: `mktemp` lists those of all tests before to find the next, which thousands make slow."""
    folder = tmp_path_factory.mktemp("t")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, _new_folders: Iterator[Path]) -> Path:
    """An empty folder for a test, with its name, as pytest would make it."""
    path = next(_new_folders)
    folder = path.with_name(re.sub(r"\W", "_", request.node.name)[:30] + path.name)
    folder.mkdir(0o700)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(_new_folders: Iterator[Path], abilities_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the user's cache is none of a test's business: ceilings, and what frameworks support."""
    monkeypatch.setenv(ceilings.VARIABLE, str(next(_new_folders)))
    monkeypatch.setenv(capabilities.VARIABLE, str(abilities_folder))


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a distribution that this process sees."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def make(*args: Any) -> None:
        install(folder, *args)
        registry.scan.cache_clear()

    return make


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy distribution, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("toy")
    install(folder, "toy", ENTRY_POINTS, TOY)
    return folder


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    returncode: int | str | None
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Done:
        with pytest.raises(SystemExit) as caught:
            main(list(args))
        return Done(caught.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def cli(command: Callable[..., Done], toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs the command line in this process, with the toy distribution at hand; workers are processes, as ever.

    Starting Python and importing pandas for each command would be most of what tests take. `program` does it, for what
    only a process of its own shows: signals, pipes, terminals, and how it ends.
    """
    handled = signal.getsignal(signal.SIGTERM)
    monkeypatch.syspath_prepend(toy_folder)
    monkeypatch.setenv("PYTHONPATH", str(toy_folder))

    def run(*args: str, env: Mapping[str, str] | None = None) -> Done:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in (env or {}).items():
                patched.setenv(name, value)
            try:
                return command(*args)
            finally:
                signal.signal(signal.SIGTERM, handled)

    return run


Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(toy_folder: Path, tmp_path: Path) -> Program:
    """Runs the command line in a process of its own, in an empty folder, with the toy distribution at hand."""

    def run(*args: str, env: Mapping[str, str] | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "benchmarker", *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(toy_folder), **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def recorded(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """Records of `run --framework=toy --problem=nap` with some options, made once for all tests that ask for them."""

    @functools.cache
    def run(*options: str) -> str:
        words = ["run", "--framework=toy", "--problem=nap", "--power=none", *options, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarker", *words],
            cwd=tmp_path_factory.mktemp("recorded"),
            env={**os.environ, "PYTHONPATH": str(toy_folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    return lambda *options: [
        {name: value for name, value in record.items() if name != "metrics"} for record in json.loads(run(*options))
    ]


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are built in this process and neither checked nor timed: what is tested is their profile, a process's."""
    from support.checks import ability_of, untimed_trial  # the frameworks take seconds

    monkeypatch.setattr("benchmarker.running.run.run_process", untimed_trial)
    monkeypatch.setattr(capabilities, "_ask", lambda problem, framework, _: ability_of(problem, framework))


@pytest.fixture
def quick_xla():
    """JAX whose programs are compiled quickly, and not to be fast: where results count, compiling takes most time."""
    yield from _configured("jax_disable_most_optimizations")


@pytest.fixture
def x64(quick_xla):
    """JAX with 64-bit types, which compiles quickly."""
    yield from _configured("jax_enable_x64")


def _configured(name: str):
    jax = pytest.importorskip("jax")
    before = jax.config.values[name]
    jax.config.update(name, True)
    yield jax
    jax.config.update(name, before)
