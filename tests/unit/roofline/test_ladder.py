"""The rungs of a step, from made records whose times are known."""

import pytest
from support.records import make_ceiling, make_record

from benchmarker import Piece
from benchmarker.display.ladder import ladder_output
from benchmarker.hooks.cases import Cases
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.profile import Scope
from benchmarker.records.record import CostPart
from benchmarker.roofline.ladder import MeasuredPiece, ladder
from benchmarker.tables import terminal
from benchmarker.tables.table import Table

FLOPS, BYTES, COUNT = 10**9, 4 * 10**6, 2
COST = CostPart(FLOPS, 0, BYTES, 1, None)
ROOF = Ceilings((make_ceiling(10e9), make_ceiling(4e9, "memory")))
"""A piece takes at least 0.1 s of compute, which is more than the 1 ms of its bytes."""
DRIFT = [1.0, 1.1, 0.9, 1.2, 1.05, 0.95]
"""What each round is slower by, in every case."""


def scope(name, step_s):
    ns = round(step_s * 1e9)
    return Scope(name, "forward", 1, 1, 1, ns, ns, ns, 1.0, [ns])


def trials(framework, number, step_s, **fields):
    of_scope = fields.pop("in_step_s", None)
    return [
        make_record(
            step_s * drift,
            trial=trial,
            case={"framework": framework, "params": {"ms": float(number)}},
            design={"case_number": number},
            cost=CostPart(COUNT * FLOPS, 0, COUNT * BYTES, 1, None),
            **({"scopes": [scope("head", of_scope * drift)]} if of_scope else {}),
            **fields,
        )
        for trial, drift in enumerate(DRIFT)
    ]


def made(alone, steps, ceilings=ROOF):
    """A ladder of one piece, of which a step has two."""
    piece = Piece(("head",), "toy", {}, COUNT)
    numbered = enumerate(alone.items())
    of_piece = [record for number, (name, step_s) in numbered for record in trials(name, number, step_s)]
    of_steps = [
        record
        for number, (name, (step_s, in_step_s)) in enumerate(steps.items())
        for record in trials(name, 100 + number, step_s, in_step_s=in_step_s)
    ]
    measured = MeasuredPiece(piece, "a product", COST, Cases.of(of_piece))
    return ladder("a model", [measured], Cases.of(of_steps), ceilings)


def test_each_rung_stands_on_the_one_below_it():
    found = made({"blas": 0.2, "torch": 0.4}, {"torch": (1.5, 1.0)})
    (piece,) = found.pieces
    fastest, alone, in_step = piece.rungs
    assert piece.roof_s == pytest.approx(0.1)
    assert (fastest.place, fastest.framework, fastest.below, fastest.of_below) == ("alone", "blas", None, None)
    assert fastest.of_roof == pytest.approx(0.1 / (0.2 * 1.025), rel=1e-6)  # the median of the drifts is 1.025
    assert (alone.framework, alone.below) == ("torch", "blas")
    assert alone.of_below.value == pytest.approx(0.5)
    assert (alone.of_below.low, alone.of_below.high) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (in_step.place, in_step.below) == ("in step", "alone")
    assert in_step.of_below.value == pytest.approx(0.4 / (1.0 / COUNT))
    (step,) = found.steps
    assert step.of_below.value == pytest.approx(COUNT * 0.4 / 1.5)


def test_the_losses_add_up_to_the_step():
    (losses,) = made({"blas": 0.2, "torch": 0.4}, {"torch": (1.5, 1.0)}).losses
    middle = 1.025
    assert losses.roof_s == pytest.approx(COUNT * 0.1)
    assert losses.fastest_s == pytest.approx(COUNT * (0.2 * middle - 0.1))
    assert losses.framework_s == pytest.approx(COUNT * 0.2 * middle)
    assert losses.in_step_s == pytest.approx(1.0 * middle - COUNT * 0.4 * middle)
    assert losses.rest_s == pytest.approx(0.5 * middle)
    added = losses.roof_s + losses.fastest_s + losses.framework_s + losses.in_step_s + losses.rest_s
    assert added == pytest.approx(losses.step_s)
    assert losses.most == "head"


def test_pieces_of_the_same_scope_lose_together_within_the_step():
    """As convolutions of several sizes do: the profile has the time of all of them."""
    pieces = [
        MeasuredPiece(Piece(("head",), "toy", {"n": n}, count), title, COST, Cases.of(trials("torch", n, step_s)))
        for n, count, title, step_s in ((1, 2, "a small product", 0.2), (2, 1, "a large product", 0.4))
    ]
    found = ladder("a model", pieces, Cases.of(trials("torch", 100, 1.5, in_step_s=1.2)), ROOF)
    assert [[rung.place for rung in piece.rungs] for piece in found.pieces] == [["alone"], ["alone"]]
    (losses,) = found.losses
    middle = 1.025
    assert losses.in_step_s == pytest.approx((1.2 - 2 * 0.2 - 0.4) * middle)
    assert losses.rest_s == pytest.approx(0.3 * middle)
    assert (losses.most, losses.most_s) == ("a large product", pytest.approx(0.4 * middle - 0.1))
    assert not any("fused" in note for note in found.notes)
    assert not ladder("a model", pieces, Cases.of(trials("torch", 100, 1.5)), ROOF).losses


def test_a_share_of_fewer_rounds_than_an_interval_needs_has_none():
    few = [*trials("a", 0, 0.2)[:5], *trials("b", 1, 0.4)[:5]]
    measured = MeasuredPiece(Piece((), "toy", {}), "a product", COST, Cases.of(few))
    found = ladder("a product", [measured], [], ROOF)
    assert found.pieces[0].rungs[1].of_below.value == pytest.approx(0.5)
    assert found.pieces[0].rungs[1].of_below.low is None
    assert found.steps == found.losses == []


def test_what_is_not_known_is_null_and_a_note_says_why():
    found = made({"torch": 0.4}, {"torch": (1.5, None)}, Ceilings())
    assert found.roof is None
    assert found.pieces[0].roof_s is found.pieces[0].rungs[0].of_roof is None
    assert not found.losses
    assert any("benchmarker ceilings" in note for note in found.notes)
    assert any(note.startswith("torch: ") for note in found.notes)


def test_an_exchange_between_devices_has_no_roof():
    measured = MeasuredPiece(Piece((), "toy", {}), "an exchange", COST, Cases.of(trials("a", 0, 0.2)), "it is no work")
    found = ladder("", [measured], [], ROOF)
    assert found.roof is found.pieces[0].roof_s is found.pieces[0].rungs[0].of_roof is None
    assert found.notes == ["an exchange has no roof: it is no work"]


def test_tables_fit_a_terminal():
    found = made({"blas": 0.2, "onednn": 0.3, "torch": 0.4}, {"torch": (1.5, 1.0)})
    tables = [part for part in ladder_output(found) if isinstance(part, Table)]
    assert len(tables) == 3
    for table in tables:
        printed = terminal.lines(table, 80)
        assert max(map(len, [*printed.headings, *printed.rows])) <= 80
