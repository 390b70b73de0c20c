"""What a machine's card is measured by, on machines that are played."""

import pytest

from benchmarker import UserError
from benchmarker.api.framework import Device, FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.planning import build, diagnostics
from benchmarker.planning.cases import Ability
from benchmarker.records.machine import Cache

CPU = Device("cpu", "a CPU", ("fp32",), count=None)
GPU = Device("cuda", "a card", ("fp32",), 2**36)


@pytest.fixture
def played(monkeypatch):
    """Frameworks that see these devices, on a machine with three caches and 64 GiB of memory."""

    def play(**devices):
        def abilities(problem, names, environment):
            support = Support({"inference": ("fp32",)})
            return {name: Ability(FrameworkInfo(name, "1", devices[name], "never", {}), support) for name in names}

        for module in (build, diagnostics):
            monkeypatch.setattr(module, "abilities", abilities)
        monkeypatch.setattr(diagnostics, "caches", lambda: [Cache(1, 48 * 2**10), Cache(2, 2**21), Cache(3, 2**28)])
        monkeypatch.setattr(diagnostics, "memory_bytes", lambda: 2**36)

    return play


def test_on_a_cpu_nothing_is_copied_to_a_device(played):
    played(jax=(CPU,), torch=(CPU,), numpy=(CPU,))
    plan = diagnostics.diagnostics(["jax", "torch", "numpy"], None, 6)
    assert plan.trials == 6
    kinds = [
        (case.problem, case.framework, case.params.get("kernels", case.params.get("bytes"))) for case in plan.cases
    ]
    assert sorted(kinds) == [
        *(("latency", "jax", size) for size in (24 * 2**10, 2**20, 2**27, 2**29)),
        *(("launch", name, kernels) for name in ("jax", "numpy", "torch") for kernels in (1, 1000)),
    ]
    assert {case.device for case in plan.cases} == {"cpu"}


def test_each_framework_launches_where_it_prefers_and_loads_are_of_the_cpu(played):
    played(jax=(GPU, CPU), numpy=(CPU,), torch=(GPU, CPU))
    plan = diagnostics.diagnostics(["jax", "numpy", "torch"], None, 1)
    assert {(case.problem, case.framework, case.device) for case in plan.cases} == {
        ("launch", "jax", "cuda"),
        ("launch", "numpy", "cpu"),
        ("launch", "torch", "cuda"),
        ("transfer", "jax", "cuda"),
        ("transfer", "torch", "cuda"),
        ("latency", "jax", "cpu"),
    }
    copied = [case.params for case in plan.cases if case.problem == "transfer" and case.framework == "torch"]
    assert len(copied) == 12
    assert {params["memory"] for params in copied} == {"pinned", "pageable"}


def test_without_known_caches_and_with_little_memory(played, monkeypatch):
    played()
    monkeypatch.setattr(diagnostics, "caches", list)
    assert diagnostics.working_sets() == [2**14, 2**19, 2**23, 2**28]
    monkeypatch.setattr(diagnostics, "memory_bytes", lambda: 2**31 + 1)
    assert diagnostics.working_sets()[-1] == 2**26


def test_frameworks_that_measure_none_of_it_are_refused(played):
    played(onednn=(CPU,))
    with pytest.raises(UserError, match=r"onednn: no launch, .*; frameworks that have them: jax, numpy, torch"):
        diagnostics.diagnostics(["onednn"], None, 1)
    with pytest.raises(UserError, match="no framework is named 'troch'"):
        diagnostics.diagnostics(["troch"], None, 1)
