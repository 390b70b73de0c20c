"""What follows from the case of a record is recomputed from the formulas of its problem."""

from pathlib import Path

import msgspec
import pytest
from support.records import make_record, with_formulas

from benchmarker import Case
from benchmarker.hooks import parameters, registry
from benchmarker.machine import description
from benchmarker.planning.cases import command_line
from benchmarker.procurement.evidence import Formulas
from benchmarker.records import reading
from benchmarker.records.profile import Exchange
from benchmarker.records.record import Componentwise

FIXTURES = Path(__file__).parents[2] / "fixtures/records"


@pytest.fixture
def traced():
    """A measured record of PyTorch with a profile."""
    records = [reading.read(path.read_bytes()) for path in sorted(FIXTURES.glob("v1/2*.json"))]
    record = next(record for record in records if record.trace)
    return msgspec.structs.replace(record, command=command_line(record.case))


def differences(record):
    return Formulas().differences(record)


def of(problem, mode="inference", output="x", **case):
    """A record with what the formulas give for a problem at its default size."""
    made = registry.problem(problem)
    params = parameters.resolve(made, {}, "cpu")
    plain = Case(problem=problem, framework="torch", device="cpu", mode=mode, params=params)
    record = changed(make_record(), "check", output=output)
    return with_formulas(msgspec.structs.replace(record, case=msgspec.structs.replace(plain, **case)))


def changed(record, section, **fields):
    return msgspec.structs.replace(record, **{section: msgspec.structs.replace(getattr(record, section), **fields)})


def test_a_measured_record_is_as_its_formulas_say(traced):
    assert differences(traced) == []


@pytest.mark.parametrize(
    ("section", "fields", "told"),
    [
        ("cost", {"flops": 1}, "cost.flops is 1, but the problem's formula gives 524288"),
        ("cost", {"bytes": 1}, "cost.bytes is 1, but the problem's formula gives 49152"),
        ("cost", {"tokens": 7}, "cost.tokens is 7, but the problem's formula gives None"),
        ("cost", {"recomputed_flops": 9}, "cost.recomputed_flops is 9, more than there can be"),
        ("types", {"compute": "bf16"}, "types.compute is bf16, but the problem's formula gives fp32"),
        ("check", {"bound": 0.1}, "check.bound is 0.1, but the problem's formula gives 1.9073486328125e-06"),
    ],
)
def test_each_field_that_follows_from_the_case_is_compared(traced, section, fields, told):
    assert [text for _, text in differences(changed(traced, section, **fields))] == [told]


@pytest.mark.parametrize(
    ("problem", "output", "precision"), [("gemm", "c", "bf16"), ("gemm", "c", "fp16"), ("gpt2", "logits", "mixed_bf16")]
)
def test_the_bound_of_a_short_type_is_recomputed(problem, output, precision):
    """From the seed of the case; sums in another order may change it a little."""
    record = of(problem, output=output, precision=precision, seed=3)
    bound = record.check.bound
    assert differences(record) == []
    assert differences(changed(record, "check", bound=1.001 * bound)) == []
    told = f"check.bound is 0.125, but the problem's formula gives {bound}"
    assert [text for _, text in differences(changed(record, "check", bound=0.125))] == [told]


def test_the_bound_by_element_is_recomputed():
    record = of("gemm", output="c", precision="fp64")
    for stored, told in (
        (32 * 2**-53, []),
        (0.5, [f"check.componentwise.bound is 0.5, but the problem's formula gives {32 * 2**-53}"]),
    ):
        by_element = changed(record, "check", componentwise=Componentwise(0.0, "c", stored))
        assert [text for _, text in differences(by_element)] == told


def test_a_bound_that_takes_too_much_work_is_not_recomputed():
    """The parameters are a stranger's."""
    record = of("gpt2", "training", "loss", precision="bf16")
    params = {**record.case.params, "batch_size": 10**12, "microbatches": 10**12}
    case = msgspec.structs.replace(record.case, params=params)
    told = differences(changed(msgspec.structs.replace(record, case=case), "check", bound=0.125))
    assert told
    assert "check.bound" not in dict(told)


def test_how_often_a_scope_is_entered_is_compared(traced):
    scopes = [msgspec.structs.replace(scope, expected=9) if scope.expected else scope for scope in traced.scopes]
    told = "the scope gemm is expected 9 times, but the problem's formula gives 2"
    assert differences(msgspec.structs.replace(traced, scopes=scopes)) == [("scopes.expected", told)]


def test_what_devices_exchange_is_compared(traced):
    """Two devices that train with divided data reduce all gradients once."""
    record = of("gpt2", "training", devices=2, ranks=2, parallel="dp")
    problem = registry.problem("gpt2")
    params = parameters.convert(problem, record.case.params)
    (formula,) = params.on(2, "dp").collectives("training", "fp32")
    names = params.scopes("training")
    scopes = [msgspec.structs.replace(traced.scopes[0], scope=name, expected=2 * names[name]) for name in names]

    def with_exchange(count):
        exchange = Exchange(formula.op, 1.0, 8.0, count, formula.bytes)
        trace = msgspec.structs.replace(traced.trace, exchanges=[exchange])
        return differences(msgspec.structs.replace(record, trace=trace, scopes=scopes, kernels=[]))

    assert with_exchange(formula.count) == []
    ((path, told),) = with_exchange(7)
    assert path == "trace.exchanges"
    assert told.startswith(f"{formula.op} is expected 7 times with {formula.bytes} bytes in a step, but ")


def test_copies_on_each_device_have_the_cost_of_all():
    record = of("gemm", devices=3, independent=True)
    assert ("cost.samples", "cost.samples is 1, but the problem's formula gives 3") in differences(record)


def test_a_command_that_is_not_that_of_the_case_is_told():
    assert [path for path, _ in differences(msgspec.structs.replace(of("gemm"), command="true"))] == ["command"]


def test_parameters_that_the_problem_refuses_are_told():
    record = of("gemm")
    case = msgspec.structs.replace(record.case, params={**record.case.params, "m": 0})
    assert differences(msgspec.structs.replace(record, case=case)).startswith("--m=0: ")
    assert differences(make_record()) == "the problem nap is not installed here"


def test_a_case_is_computed_once_for_all_its_trials(monkeypatch):
    record, formulas = of("gemm"), Formulas()
    assert formulas.differences(record) == []
    monkeypatch.setattr(registry, "load", None)
    assert formulas.differences(msgspec.structs.replace(record, trial=1)) == []


def test_only_the_same_version_and_commit_has_the_same_formulas(monkeypatch):
    monkeypatch.setattr(description, "commit", lambda: "0123456789ab")
    record = changed(of("gemm"), "software", commit="0123456789ab")
    assert Formulas().made_here(record)
    assert not Formulas().made_here(changed(record, "software", commit="ba9876543210"))
    assert not Formulas().made_here(changed(record, "software", benchmarker="0.0.9"))
    assert not Formulas().made_here(make_record())
