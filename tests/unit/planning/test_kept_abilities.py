"""What a framework supports is asked once, and again as soon as the answer may be another."""

import os

import pytest

from benchmarker.api.framework import Device, FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.planning import capabilities
from benchmarker.planning.cases import Ability
from benchmarker.worker.launch import Ending
from benchmarker.worker.protocol import Described

ABILITY = Ability(
    FrameworkInfo(
        "numpy", "2.0", (Device("cpu", "a CPU", ("fp32",)),), "never", {"numpy": "2.0"}, ("OMP_NUM_THREADS",)
    ),
    Support({"inference": ("fp32",)}, {"impl": ("einsum",)}, ({"mode": "training", "impl": "fused"},)),
)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Plays the worker that is asked, with nothing kept at first; returns the list of what was asked."""
    monkeypatch.setenv(capabilities.VARIABLE, str(tmp_path / "kept"))
    requests = []

    def run_worker(request, environment, timeout_s, log, on_event):
        requests.append((request.framework, dict(environment)))
        on_event(Described(ABILITY.info, ABILITY.support))
        return Ending(0, timed_out=False, wall_s=1.0)

    monkeypatch.setattr(capabilities, "run_worker", run_worker)
    return requests


def ask(environment=None):
    return capabilities.abilities("gemm", ["numpy"], environment or {})["numpy"]


def test_the_second_call_asks_nothing_and_has_the_same_answer(asked):
    assert ask() == ask() == ABILITY
    assert len(asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("OMP_NUM_THREADS", "7"),
        lambda patch: patch.setenv("HIP_VISIBLE_DEVICES", "1"),
        lambda patch: patch.setattr(capabilities, "__version__", "another"),
        lambda patch: patch.setattr(capabilities, "_distributions", lambda _: [("jax-9.9.dist-info", 1)]),
        lambda patch: patch.setattr(capabilities, "_files", lambda _: [("plugin.py", 1, 2)]),
        lambda patch: patch.setattr(capabilities, "gethostname", lambda: "another"),
    ],
    ids=["variable", "visible devices", "tool", "distributions", "plugins' files", "host"],
)
def test_what_an_answer_depends_on_makes_the_framework_be_asked_again(asked, change, monkeypatch):
    ask()
    change(monkeypatch)
    ask()
    ask()
    assert len(asked) == 2


def test_another_driver_or_device_makes_the_framework_be_asked_again(asked, monkeypatch, tmp_path):
    monkeypatch.setattr(capabilities, "_DRIVERS", (tmp_path / "version",))
    monkeypatch.setattr(capabilities, "_DEVICES", tmp_path)
    for number, name in enumerate(("version", "nvidia0"), 1):
        ask()
        ask()
        assert len(asked) == number
        (tmp_path / name).write_text("570.1")
    ask()
    assert len(asked) == 3


def test_each_choice_of_gpus_has_its_own_answer(asked):
    for environment in ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, {}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, {}):
        ask(environment)
    assert len(asked) == 2


def test_a_damaged_file_is_replaced(asked):
    ask()
    (path,) = capabilities.folder().iterdir()
    for content in (b"", b"{", b"[]", path.read_bytes().replace(b'"einsum"', b"7")):
        path.write_bytes(content)
        before = len(asked)
        assert ask() == ask() == ABILITY
        assert len(asked) == before + 1


def test_a_cache_that_cannot_be_written_is_no_error(asked, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(capabilities.VARIABLE, str(tmp_path / "file"))
    assert ask() == ask() == ABILITY
    assert len(asked) == 2
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        monkeypatch.setenv(capabilities.VARIABLE, str(tmp_path / "closed"))
        assert ask() == ABILITY


def test_the_files_of_a_package_are_seen_to_change(tmp_path, monkeypatch):
    package = tmp_path / "some_plugin_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = capabilities._files.__wrapped__("some_plugin_package")
    (package / "more.py").write_text("x = 1")
    assert len(before) == 1
    assert len(capabilities._files.__wrapped__("some_plugin_package")) == 2
    assert capabilities._files.__wrapped__("no_such_package_anywhere") == []
