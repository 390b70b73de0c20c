"""Which device `ceilings` measures, and in what, if neither is named, on a machine that is played."""

import pytest

from benchmarker import Device, FrameworkInfo, Support
from benchmarker.cli.ceiling_measurement import plan_of
from benchmarker.hooks import registry
from benchmarker.planning import build, capabilities
from benchmarker.planning.cases import Ability

CPU, CARD = Device("cpu", "a CPU", ("fp32",)), Device("cuda", "a card", ("fp32",))
DEVICES = {"numpy": (CPU,), "jax": (CARD, CPU), "torch": (CARD, CPU)}


@pytest.mark.parametrize(
    ("where", "device", "frameworks"),
    [
        ({}, "cuda", {"jax", "torch"}),
        ({"device": None}, "cuda", {"jax", "torch"}),
        ({"device": "gpu"}, "cuda", {"jax", "torch"}),
        ({"device": "cpu"}, "cpu", {"numpy", "jax", "torch"}),
    ],
)
def test_ceilings_are_of_one_device_in_all_that_have_it(monkeypatch, where, device, frameworks):
    def abilities(problem, names, environment):
        support = Support({"inference": ("fp32",)})
        return {name: Ability(FrameworkInfo(name, "1", DEVICES[name], "never", {}), support) for name in names}

    for module in (build, capabilities):
        monkeypatch.setattr(module, "abilities", abilities)
    for asked in ("available", "implementing"):
        monkeypatch.setattr(registry, asked, lambda _: [*DEVICES])
    plan = plan_of(None, ["fp32"], where)
    assert {case.device for case in plan.cases} == {device}
    assert {case.framework for case in plan.cases} == frameworks
