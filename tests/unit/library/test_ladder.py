"""What a ladder measures if no framework is named, on machines that are played."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import Device, FrameworkInfo, Support
from benchmarker.library import ladder
from benchmarker.library.ladder import MeasuredLadder, described
from benchmarker.planning import build, capabilities
from benchmarker.planning.cases import Ability

CPU = Device("cpu", "a CPU", ("fp32",))
CUDA = Device("cuda", "a card", ("fp32",))


@pytest.fixture
def played(monkeypatch):
    """Frameworks that see these devices, of which some implementations support only the CPU."""

    def play(on_cpu=(), **devices):
        def abilities(problem, names, environment):
            support = Support({"inference": ("fp32",)}, {"device": ("cpu",)} if problem in on_cpu else {})
            return {name: Ability(FrameworkInfo(name, "1", devices[name], "never", {}), support) for name in names}

        for module in (build, capabilities):
            monkeypatch.setattr(module, "abilities", abilities)
        monkeypatch.setattr(ladder.registry, "available", lambda _: [*devices])
        monkeypatch.setattr(ladder.registry, "implementing", lambda _: [*devices])

    return play


def measured_in(**settings):
    plan = build.from_description(described(settings, None, 1))
    return {(case.problem, case.framework, case.device) for case in plan.cases}


def test_frameworks_that_have_no_accelerator_are_not_measured_beside_those_that_have_one(played):
    played(numpy=(CPU,), jax=(CUDA, CPU), torch=(CUDA, CPU))
    on_card = {("gemm", "jax", "cuda"), ("gemm", "torch", "cuda")}
    assert measured_in(problem="gemm", m=8) == on_card
    assert measured_in(problem="gemm", m=8, device="gpu") == on_card
    on_cpu = {("gemm", name, "cpu") for name in ("numpy", "jax", "torch")}
    assert measured_in(problem="gemm", m=8, device="cpu") == on_cpu


def test_pieces_are_measured_where_the_step_is(played):
    played(numpy=(CPU,), jax=(CUDA, CPU))
    assert measured_in(problem="gpt2", n_layer=1) == {
        (problem, "jax", "cuda") for problem in ("gpt2", "gemm", "attention")
    }


def test_what_is_for_cpus_alone_is_measured_there(played):
    played(numpy=(CPU,), jax=(CUDA, CPU), on_cpu=("latency",))
    assert measured_in(problem="latency") == {("latency", name, "cpu") for name in ("numpy", "jax")}


def test_exchanges_have_no_roof():
    record = make_record()
    exchange = msgspec.structs.replace(record.case, problem="collective", params={})
    found = MeasuredLadder([msgspec.structs.replace(record, case=exchange)]).ladder
    assert found.roof is found.pieces[0].roof_s is None
    assert "its bytes move between devices" in " ".join(found.notes)
