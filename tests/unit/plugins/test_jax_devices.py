"""What JAX leaves out of its description of a GPU is read from CUDA's driver."""

import ctypes
from types import SimpleNamespace

import pytest

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
