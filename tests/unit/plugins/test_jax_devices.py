"""JAX's devices: by its own names, and what it leaves out of its description of a GPU from CUDA's driver."""

import ctypes
from types import SimpleNamespace

import pytest

from benchmarker import UserError
from benchmarker.api.case import CaseRequest
from benchmarker.api.framework import FrameworkInfo
from benchmarker.hooks import registry
from benchmarker.planning.cases import Ability, make_case

jax = pytest.importorskip("benchmarker_plugins.frameworks.jax")


def driver(status=0):
    """A driver that answers as that of an H200 did."""

    def put(pointer, value):
        pointer._obj.value = value
        return status

    def text(buffer, value):
        buffer.raw = value
        return status

    return SimpleNamespace(
        cuInit=lambda _: status,
        cuDeviceGet=put,
        cuDeviceTotalMem_v2=lambda memory, _: put(memory, 150_110_011_392),
        cuDeviceGetAttribute=lambda value, attribute, _: put(value, {38: 62_914_560}[attribute]),
        cuDeviceGetUuid=lambda uuid, _: text(uuid, bytes.fromhex("092a9ca2b3eeaa4debbb4747e7299f83")),
        cuDeviceGetPCIBusId=lambda pci, length, _: text(pci, b"0000:0A:00.0".ljust(length, b"\0")),
    )


def test_memory_cache_and_address_are_those_of_the_driver(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver())
    assert jax.of_driver(0) == {
        "memory_bytes": 150_110_011_392,
        "cache_bytes": 62_914_560,
        "uuid": "GPU-092a9ca2-b3ee-aa4d-ebbb-4747e7299f83",
        "pci": "0000:0a:00.0",
    }


def missing(name):
    raise OSError(name)


@pytest.mark.parametrize("library", [missing, lambda _: driver(status=100)])
def test_nothing_is_known_without_a_driver_that_answers(monkeypatch, library):
    monkeypatch.setattr(ctypes, "CDLL", library)
    assert jax.of_driver(0) == {}


class Played(SimpleNamespace):
    """A device of a plugin of JAX that tells nothing but its names."""

    def memory_stats(self):
        return None


@pytest.fixture
def played(monkeypatch):
    """JAX with devices of another platform beside the CPU."""
    of_cpu = jax.jax.local_devices(backend="cpu")

    def play(platform, count=1):
        others = [Played(platform=platform, device_kind=f"{platform} v1") for _ in range(count)]
        monkeypatch.setattr(jax.jax, "local_devices", lambda backend=None: of_cpu if backend == "cpu" else others)
        return {device.platform: device for device in jax.describe_framework().devices}

    return play


@pytest.mark.parametrize(("platform", "count"), [("tpu", 4), ("METAL", 1), ("never_heard_of", 2)])
def test_a_platform_has_the_name_that_jax_gives_it(played, platform, count):
    found = played(platform, count)
    assert [*found] == [platform, "cpu"]
    device = found[platform]
    assert (device.name, device.count) == (f"{platform} v1", count)
    assert device.memory_bytes is device.uuid is device.pci is None
    assert "fp32" in device.precisions
    assert "tf32" not in device.precisions


def test_what_only_a_cpu_can_do_is_refused_on_any_other_platform(played):
    latency = pytest.importorskip("benchmarker_problems.latency.jax")
    info = FrameworkInfo("jax", "1", (*played("METAL").values(),), "always", {})
    ability = Ability(info, latency.describe_workload())
    kind = registry.problem("latency")
    assert make_case(CaseRequest(problem="latency", device="cpu"), kind, "jax", ability).device == "cpu"
    with pytest.raises(UserError, match="latency in jax does not support --device=METAL; it supports: cpu"):
        make_case(CaseRequest(problem="latency"), kind, "jax", ability)
    with pytest.raises(UserError, match="jax 1 reports no device 'metal' here; it reports: METAL, cpu"):
        make_case(CaseRequest(problem="latency", device="metal"), kind, "jax", ability)
