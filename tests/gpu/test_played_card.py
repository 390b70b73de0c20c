"""Tests on a GPU from end to end on a card that is played: NVML, nvidia-smi, and NumPy as its framework."""

import os

import pytest
from gpu import test_devices, test_energy, test_numerics
from support import gpu, nvml
from support.cards import Card, Ramp, write
from support.toy import install

from benchmarker.hooks import registry

UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
FRAMEWORK = """
    from benchmarker import Device, FrameworkInfo, hookimpl
    from benchmarker_plugins.frameworks.numpy import NumpyFramework

    @hookimpl
    def describe_framework():
        device = Device("cuda", "NVIDIA H200", ("fp64", "fp32"), memory_bytes=140 * 2**30)
        return FrameworkInfo("played", "1.0", (device,), "never", {})

    @hookimpl
    def make_framework(device, precision, threads):
        return Played()

    class Played(NumpyFramework):
        def peak_memory_bytes(self):
            return 40 * 2**20
"""
PROBLEMS = ("gemm", "stream", "attention", "gpt2")
SMI = f"""#!/bin/sh
case "$1" in
    -L) echo "GPU 0: NVIDIA H200" ;;
    --query-gpu*) echo "0, NVIDIA H200, {UUID}, 580.159, 9.0, 143771, 700.00, Enabled, Disabled" ;;
esac
"""


@pytest.fixture
def figures():
    """What was recorded."""
    return {}


@pytest.fixture
def tool(tmp_path, monkeypatch, figures):
    """The command line with a card whose power rises from 100 W to 500 W within seconds."""
    implemented = "from benchmarker_problems.{}.numpy import build_workload, describe_workload"
    modules = {f"{name}.py": implemented.format(name) for name in PROBLEMS}
    entries = {f"workload.{name}.played": f"played.{name}" for name in PROBLEMS}
    site = tmp_path / "site"
    install(site, "played", {"framework.played": "played", **entries}, {"__init__.py": FRAMEWORK, **modules})
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    write(tmp_path / "cards", [Card(uuid=UUID, curve=Ramp(100, 500, 12))], before_s=0)
    for name, value in nvml.environment(tmp_path / "cards").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(gpu, "FRAMEWORKS", ("played",))
    monkeypatch.setattr(gpu, "DESCRIBED", {})
    monkeypatch.setattr(test_energy, "PRODUCT", ("--m=256", "--n=256", "--k=256"))
    monkeypatch.setattr(test_energy, "SECONDS", 3)
    monkeypatch.setattr(test_energy, "BUSY_W", 0.9)  # the played power follows time, not load
    registry.scan.cache_clear()
    return gpu.Tool("cuda", tmp_path / "own", 300, figures.__setitem__)


@pytest.mark.slow
def test_the_card_is_named_and_its_energy_is_measured(tool, figures):
    test_devices.test_named(tool, "played")
    assert figures["figure"] == f"NVIDIA H200, {UUID}, peak 40 MiB"
    test_energy.test_nvml_counter(tool)
    assert figures["values"]["ratio"] == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_a_counter_that_is_wrong_is_found(tool, tmp_path):
    write(tmp_path / "cards", [Card(uuid=UUID, curve=Ramp(100, 500, 12), counter_scale=1.2)], before_s=0)
    with pytest.raises(pytest.fail.Exception, match="off the polled power"):
        test_energy.test_nvml_counter(tool)


@pytest.mark.slow
def test_all_that_is_listed_is_checked(tool, figures):
    test_numerics.test_right(tool, "played")
    assert "checks, the largest error is" in figures["figure"]


@pytest.mark.slow
def test_what_is_missing_is_skipped_and_what_is_broken_fails(tool):
    with pytest.raises(pytest.skip.Exception, match="absent is not installed"):
        tool.precisions("absent")
    with pytest.raises(pytest.skip.Exception, match="numpy finds no device of the platform cuda"):
        tool.precisions("numpy")
    (tool.folder.parent / "site/played/__init__.py").write_text("raise ValueError('a broken driver')")
    gpu.DESCRIBED.clear()
    with pytest.raises(pytest.fail.Exception, match="played cannot be imported: ValueError: a broken driver"):
        tool.precisions("played")
    with pytest.raises(pytest.fail.Exception, match="no framework is named 'absent'"):
        tool.run("--framework=absent", "--problem=gemm")
