"""Predictions of a step under two roofs, from made records whose times are known."""

import msgspec
import pytest
from support.records import make_ceiling, make_record

from benchmarker import Piece, UserError
from benchmarker.display.two_roofs import two_roofs_output
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.cases import Cases
from benchmarker.library.ladder import MeasuredLadder
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.profile import Scope, Trace
from benchmarker.records.record import CostPart
from benchmarker.roofline.ladder import MeasuredPiece
from benchmarker.roofline.two_roofs import predictions
from benchmarker.tables import terminal
from benchmarker.tables.table import Table

PARAMS = {"n_layer": 1, "d_model": 4, "n_head": 2, "d_ff": 8, "vocab_size": 10, "seq_len": 3, "batch_size": 2}
STEP = parameters.convert(registry.problem("gpt2"), parameters.resolve(registry.problem("gpt2"), PARAMS, "cpu"))
PEAK, BANDWIDTH = 1e6, 1e4
ROOF = Ceilings((make_ceiling(PEAK), make_ceiling(BANDWIDTH, "memory")))
AT_ROOF = {
    name: max(work.flops / PEAK, work.bytes / BANDWIDTH) for name, work in STEP.parts("inference", "fp32").items()
}
"""The least time of each scope, by the formula."""
HEAD_S, MLP_S = 0.3, 0.2
OF_TRACE = ("chrome", "torch", False, {}, 4, 4, 1)
DRIFT = [1.0, 1.1, 0.9, 1.2, 1.05, 0.95]
"""What each round is slower by, in every case."""
MIDDLE = 1.025


def scope(name, step_s, phase="forward"):
    ns = round(step_s * 1e9)
    return Scope(name, phase, 1, 1, 1, ns, ns, ns, 1.0, [ns])


def trials(number, step_s, problem="nap", params=None, framework="torch", **fields):
    made = [
        make_record(
            step_s * drift,
            trial=trial,
            case={"framework": framework, "problem": problem},
            design={"case_number": number},
            cost=CostPart(1, 0, 1, 1, None),
            **{name: make(drift) for name, make in fields.items()},
        )
        for trial, drift in enumerate(DRIFT)
    ]
    replace = msgspec.structs.replace
    return [replace(one, case=replace(one.case, params=params or {"ms": float(number)})) for one in made]


def of_step(framework="torch", profiled=True):
    made = {
        "scopes": lambda drift: [
            scope("lm_head", 0.5 * drift),
            scope("mlp_fc", 0.2 * drift),
            scope("ln_f", 0.4 * drift),
            scope("", 0.1 * drift, ""),
        ],
        "trace": lambda drift: Trace(*OF_TRACE, [round(2.2e9 * drift)], *(0,) * 12, [], [], [], True),
    }
    return trials(9, 2.0, "gpt2", PARAMS, framework, **(made if profiled else {}))


def made(steps, ceilings=ROOF, head_s=HEAD_S):
    pieces = [
        MeasuredPiece(Piece((name,), "toy", {}), name, None, Cases.of(trials(number, step_s)))
        for number, (name, step_s) in enumerate({"lm_head": head_s, "mlp_fc": MLP_S}.items())
    ]
    return predictions("a model", pieces, Cases.of(steps), ceilings)


def test_the_machine_has_every_scope_at_its_roof_and_the_framework_its_pieces_as_alone():
    (found,) = made(of_step()).steps
    assert found.machine_s == pytest.approx(sum(AT_ROOF.values()))
    rest_s = sum(AT_ROOF.values()) - AT_ROOF["lm_head"] - AT_ROOF["mlp_fc"]
    assert found.own_s == pytest.approx((HEAD_S + MLP_S) * MIDDLE + rest_s)
    assert found.measured_s == pytest.approx(2.0 * MIDDLE)
    assert found.of_own.low < found.own_s / found.measured_s < found.of_own.high
    assert found.of_own.low < found.of_own.value < found.of_own.high
    assert found.of_machine.value == pytest.approx(found.machine_s / found.measured_s, rel=0.02)


def test_pieces_alone_that_drift_with_the_step_have_a_share_without_a_spread():
    (found,) = made(of_step(), Ceilings()).steps
    share = found.of_own
    assert (share.value, share.low, share.high) == pytest.approx([(HEAD_S + MLP_S) / 2.0] * 3)
    assert found.machine_s is found.of_machine is None


def test_the_parts_add_up_to_the_step_and_the_longest_beyond_its_roof_is_first():
    (found,) = made(of_step()).steps
    parts = {part.name: part for part in found.parts}
    assert sum(part.in_step_s or 0 for part in found.parts) == pytest.approx(found.measured_s)
    assert parts["lm_head"].kind == "piece"
    assert (parts["lm_head"].own_s, parts["lm_head"].in_step_s) == pytest.approx((HEAD_S * MIDDLE, 0.5 * MIDDLE))
    assert (parts["ln_f"].own_s, parts["ln_f"].in_step_s) == pytest.approx((AT_ROOF["ln_f"], 0.4 * MIDDLE))
    assert parts["outside scopes"].in_step_s == pytest.approx(0.1 * MIDDLE)
    assert parts["idle"].in_step_s == pytest.approx((2.2 - 1.2) * MIDDLE)
    assert parts["without the profiler"].in_step_s == pytest.approx(-0.2 * MIDDLE)
    assert parts["ln_1"].in_step_s is parts["ln_1"].beyond_s is None
    assert found.parts[0].name == "idle"


def test_pieces_that_share_a_scope_are_one_part_so_that_its_time_counts_once():
    pieces = [
        MeasuredPiece(Piece(("mlp_fc",), "toy", {}), name, None, Cases.of(trials(number, step_s)))
        for number, (name, step_s) in enumerate({"wide": 0.05, "narrow": 0.1}.items())
    ]
    (found,) = predictions("a model", pieces, Cases.of(of_step()), ROOF).steps
    (part,) = (part for part in found.parts if part.kind == "piece")
    assert (part.name, part.own_s, part.in_step_s) == (
        "mlp_fc",
        pytest.approx(0.15 * MIDDLE),
        pytest.approx(0.2 * MIDDLE),
    )
    assert sum(part.in_step_s or 0 for part in found.parts) == pytest.approx(found.measured_s)
    assert {part.name: part for part in found.parts}["without the profiler"].in_step_s == pytest.approx(-0.2 * MIDDLE)


def test_what_is_not_known_is_null_and_a_note_says_why():
    found = made(of_step(), Ceilings())
    assert found.roof is None
    assert "benchmarker ceilings" in " ".join(found.notes)
    assert not made(of_step(profiled=False)).steps[0].parts
    found = made(of_step("jax"))
    assert found.steps[0].own_s is found.steps[0].of_own is None
    assert found.steps[0].machine_s is not None
    assert "jax: not all pieces were measured alone" in " ".join(found.notes)


def test_records_without_a_step_with_pieces_are_refused():
    with pytest.raises(UserError, match="benchmarker ladder"):
        _ = MeasuredLadder(trials(0, 1.0, "gemm", {"m": 8})).predictions


def test_tables_fit_a_terminal_and_say_what_is_missing():
    output = list(two_roofs_output(made(of_step()), verbose=True))
    tables = [part for part in output if isinstance(part, Table)]
    assert len(tables) == 2
    for table in tables:
        printed = terminal.lines(table, 80)
        assert max(map(len, [*printed.headings, *printed.rows])) <= 80
    assert "idle is furthest above it, 1.025 s (50% of a step)" in " ".join(map(str, output))


def test_a_step_that_is_faster_than_its_pieces_alone_says_which_of_them():
    output = " ".join(map(str, two_roofs_output(made(of_step(), head_s=2.9), verbose=False)))
    assert "lm_head is furthest below it, 2.46 s (120% of a step)" in output
