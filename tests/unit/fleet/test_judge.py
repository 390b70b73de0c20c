"""Fleets made of records with chosen step times: who is suspected, named, or not judged, and why."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.fleet import values
from benchmarker.fleet.folder import Stage
from benchmarker.fleet.judge import judge, repeat
from benchmarker.fleet.suspicions import Judgement
from benchmarker.fleet.values import CasePart, Measured, Node, Unit
from benchmarker.records.energy import Conditions, Range
from benchmarker.records.record import Failure, Local, Memory, Rank

Step = Callable[[int, int], float]
"""The step time of a node in a round, s."""


def fleet(nodes: int, rounds: int, step_s: Step, repeats: int = 0, **case: object) -> Measured:
    """Nodes with one case each; repeats are rounds of a second run."""
    found = {f"n{number}": Node(f"n{number}") for number in range(nodes)}
    for number, node in enumerate(found.values()):
        for run, count in ((0, rounds), (1, repeats)):
            for trial in range(count):
                at = trial + run * rounds
                values.add(node, run, make_record(step_s(number, at), run=f"{node.name}-{run}", trial=trial, case=case))
    return Measured(found, int(repeats > 0), [])


def of_nodes(measured: Measured) -> Stage:
    """What is to be measured again, on nodes alone."""
    again = repeat(measured, 0.05, 0.02)
    assert again is not None
    assert again.of_nodes is not None
    assert again.of_links is None
    return again.of_nodes


def jitter(number: int, at: int) -> float:
    """Within ± 0.1%, and different for each node and round."""
    return 1 + 0.001 * math.sin(7 * number + 3 * at)


def slow_third(number: int, at: int) -> float:
    return jitter(number, at) * (1.05 if number == 2 else 1)


def test_a_slow_node_is_named_with_its_shift_interval_and_p():
    """Of 11 deciding rounds all exceed δ: p is 2**-11, and the interval is that of the sign test."""
    found = judge(fleet(4, 3, slow_third, repeats=11), 0.05, 0.02)
    (named,) = found.named
    assert (named.node, named.verdict, named.rounds, named.device) == ("n2", "slower", 11, None)
    assert named.shift == pytest.approx(0.05, abs=0.002)
    assert named.p_value == pytest.approx(2**-11)
    assert named.p_adjusted == pytest.approx(2 * 2**-11)
    assert 0.048 < named.low < named.shift < named.high < 0.052
    assert found.headline.startswith(f"1 of 4 nodes is slower than the others: n2 by {named.shift:.1%} (")
    assert not found.is_ok
    assert [cell.verdict for cell in found.cells[1:]] == ["not suspected"] * 3
    assert found.against == "all other nodes"


def test_a_fast_node_is_named_too():
    found = judge(fleet(4, 3, lambda number, at: 2.1 - slow_third(number, at), repeats=11), 0.05, 0.02)
    (named,) = found.named
    assert (named.node, named.verdict) == ("n2", "faster")
    assert named.shift == pytest.approx(-0.05 / 1.1, abs=0.005)


def test_nothing_is_named_or_repeated_where_all_are_alike():
    measured = fleet(4, 3, jitter)
    assert repeat(measured, 0.05, 0.02) is None
    found = judge(measured, 0.05, 0.02)
    assert found.is_ok
    assert found.headline == "no outlier: none of 4 nodes differs significantly from the others by more than 2%"
    assert found.doubts == []


def test_a_suspect_of_the_first_rounds_is_cleared_by_the_others():
    """It was slow only while it was picked."""
    measured = fleet(4, 3, lambda number, at: slow_third(number, at) if at < 3 else jitter(number, at), repeats=11)
    found = judge(measured, 0.05, 0.02)
    assert found.is_ok
    assert (found.cells[0].node, found.cells[0].verdict) == ("n2", "alike")
    assert found.cells[0].p_adjusted == pytest.approx(1)
    assert abs(found.cells[0].shift) < 0.002


def test_suspects_are_repeated_beside_controls_as_often_as_is_enough():
    stage = of_nodes(fleet(4, 3, slow_third))
    assert (set(stage.nodes), stage.nodes[0], stage.rounds, len(stage.cases)) == ({"n0", "n1", "n2", "n3"}, "n2", 12, 1)
    assert stage.cases[0]["problem"] == "nap"
    many = of_nodes(fleet(100, 3, slow_third))
    assert len(many.nodes) == 65
    assert many.nodes[0] == "n2"


def test_what_is_undecided_is_repeated_once_more():
    """In half of the deciding rounds the suspect was as fast as the others."""
    measured = fleet(
        4, 3, lambda number, at: slow_third(number, at) if at < 3 or at % 2 else jitter(number, at), repeats=12
    )
    assert judge(measured, 0.05, 0.02).cells[0].verdict == "undecided"
    stage = of_nodes(measured)
    assert (stage.nodes[0], len(stage.nodes), stage.rounds) == ("n2", 4, 12)
    measured.nodes["n1"].trouble = "ended early"
    assert "n1" not in of_nodes(measured).nodes
    measured.nodes["n2"].trouble = "ended early"
    assert repeat(measured, 0.05, 0.02) is None
    assert repeat(fleet(4, 3, slow_third, repeats=12), 0.05, 0.02) is None


def test_three_rounds_alone_decide_nothing_and_the_remedy_is_told():
    found = judge(fleet(4, 3, slow_third), 0.05, 0.02)
    assert not found.named
    assert found.cells[0].verdict == "not judged"
    assert found.cells[0].reason == "0 deciding rounds; with 1 suspicions, 5 are needed"
    assert "not decided: n2" in found.headline
    assert "measure with --rounds=9" in found.doubts[0]


def test_the_rounds_that_the_remedy_names_are_enough():
    found = judge(fleet(4, 9, slow_third), 0.05, 0.02)
    (named,) = found.named
    assert (named.node, named.rounds, named.p_value) == ("n2", 6, pytest.approx(2**-6))
    assert judge(fleet(4, 7, slow_third), 0.05, 0.02).named[0].rounds == 5


def test_of_two_nodes_none_can_be_told():
    found = judge(fleet(2, 9, lambda number, at: number + jitter(number, at), repeats=11), 0.05, 0.02)
    assert not found.named
    assert found.doubts[0] == "fewer than 3 nodes: no outlier can be identified"


def test_nodes_that_scatter_are_told_what_can_be_seen():
    noisy = fleet(4, 3, lambda number, at: 1 + 0.05 * math.sin(99 * number + 57 * at))
    assert any("scatter by" in text and "may go undetected" in text for text in judge(noisy, 0.05, 0.02).doubts)


def test_a_fleet_of_two_kinds_is_told():
    found = judge(fleet(8, 3, lambda number, at: jitter(number, at) * (1 + 0.1 * (number % 2)), repeats=14), 0.05, 0.02)
    (told,) = (text for text in found.doubts if "the fleet may be mixed" in text)
    assert told.startswith("nodes vary more than the trials of one (standard deviation 7.")


def test_failed_trials_and_trouble_are_named():
    measured = fleet(4, 9, jitter)
    failed = make_record(status="failed", error=Failure("exception", "too hot", "timed"))
    values.add(measured.nodes["n1"], 0, failed)
    measured.nodes["n3"].trouble = "did not start"
    found = judge(measured, 0.05, 0.02)
    assert not found.is_ok
    assert [node.node for node in found.failed] == ["n1", "n3"]
    assert "n1: 1 of 10 trials failed in timed (exception): too hot" in found.doubts
    assert "n3: did not start" in found.doubts
    assert found.headline.endswith("; n1, n3 failed, in whole or in part")


def test_what_differs_between_machines_is_told():
    measured = fleet(4, 3, jitter)
    measured.nodes["n1"].properties["GPU driver"] = "535"
    for name in ("n0", "n2", "n3"):
        measured.nodes[name].properties["GPU driver"] = "550"
    found = judge(measured, 0.05, 0.02)
    assert found.nodes[1].unlike == ["GPU driver 535, not 550 as 3 of 4 nodes"]
    assert "n1: GPU driver 535, not 550 as 3 of 4 nodes" in found.doubts


def test_evidence_goes_with_a_named_node():
    measured = fleet(4, 3, slow_third, repeats=11)
    for name, node in measured.nodes.items():
        for of_case in node.conditions.values():
            for at in of_case:
                slow = name == "n2"
                of_case[at] = {
                    "MHz of the processor": 2000.0 if slow else 2500.0,
                    "°C of the processor": 71.0 if slow else 70.0,
                    "cores busy with other work": 0.6 if slow else 0.1,
                    **({"devices slowed down: thermal": 1.0} if slow else {}),
                }
    (named,) = judge(measured, 0.05, 0.02).named
    assert named.evidence == [
        "2000 MHz of the processor, others 2500",
        "0.6 cores busy with other work, others 0.1",
        "1 devices slowed down: thermal, others 0",
    ]


def test_conditions_are_those_of_the_record():
    record = make_record(
        telemetry=[
            Conditions(
                meter="nvml",
                id=f"GPU-{number}",
                device="Card",
                measured=True,
                ranges={"temperature_C": Range(60.0 + number, 50, 70, 9)},
                throttle={"thermal": 0.5},
                throttle_s={},
            )
            for number in (0, 2)
        ]
    )
    found = values.conditions(record)
    assert found["temperature_C of the device"] == 61.0
    assert found["devices slowed down: thermal"] == 2.0
    assert found["MHz of the processor"] == 2500.0


def test_devices_that_work_by_themselves_are_units():
    ranks = [Rank(0, 0, [0], [10**9] * 2, Memory(1, 1)), Rank(1, 0, [1], [2 * 10**9] * 2, Memory(1, 1))]
    turns = 2
    local = Local(1, [[10**9] * turns] * 2, [[10**9] * turns] * 2, [0, 1], [3 * 10**9, 4 * 10**9])
    record = make_record([2.0, 2.0], case={"devices": 2, "ranks": 2, "independent": True}, ranks=ranks, local=local)
    node = Node("n0")
    values.add(node, 0, record)
    levels = {(column.part, unit.device): of[0, 0] for column, x in node.step_s.items() for unit, of in x.items()}
    assert levels == {("together", 0): 1.0, ("together", 1): 2.0, ("alone", 0): 3.0, ("alone", 1): 4.0}


def test_levels_are_medians_of_the_first_rounds():
    measured = fleet(3, 3, lambda number, at: [1.0, 2.0, 9.0, 0.5, 0.5][at] + number, repeats=2)
    found = Judgement(measured, 0.05, 0.02)
    assert found.levels.ravel() == pytest.approx([math.log(2), math.log(3), math.log(4)])
    assert found.units == [Unit("n0", None), Unit("n1", None), Unit("n2", None)]
    assert all(isinstance(column, CasePart) for column in found.columns)


def test_results_without_a_record_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no record was read from .*; name the folder of a fleet, or runs of hosts"):
        values.read([tmp_path])
