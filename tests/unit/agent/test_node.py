"""This machine as a node of a process group."""

from __future__ import annotations

import pytest

from benchmarker import Case
from benchmarker.agent import node
from benchmarker.agent.node import LocalNode
from benchmarker.api.meter import Channel
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Sampled, Sampling


def test_readings_do_not_wait_for_a_sampler_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to end one: an agent sends what was read before it does, as the parent does not wait long."""
    done: list[str] = []

    class Played(Sampling):
        def __enter__(self) -> Sampling:
            done.append(f"sample {', '.join(self.names)}")
            return self

        def gather(self) -> list[Sampled]:
            done.append("gather")
            return [Sampled(name, (), (), []) for name in self.names]

        def _end(self) -> None:
            done.append("end")

    reading = MeterProbe(channels=(Channel(id="0", domain="package", quantity="energy_J"),))
    monkeypatch.setattr(samplers, "probe", lambda *_: {"rapl": reading, "nvml": MeterProbe()})
    monkeypatch.setattr(node, "Sampling", Played)
    with LocalNode().trial() as here:
        here.sample(Case(problem="gemm", framework="numpy", device="cpu", params={}))
        here.end()
        assert here.readings is not None
        assert [meter.meter for meter in here.readings.sampled] == ["rapl", "nvml"]
        assert done == ["sample rapl", "gather"]
    assert done[2:] == ["end"]
