"""Links between nodes of which the truth is known: who is named, the link or the node, and how often wrongly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from scipy import stats
from support.records import make_record

from benchmarker.fleet.judge import judge, repeat
from benchmarker.fleet.links import disjoint, ring
from benchmarker.fleet.results import FleetResult
from benchmarker.fleet.values import CasePart, Measured, Node, Round, Unit
from benchmarker.records.factors import factors_of

ALPHA, DELTA, ROUNDS = 0.05, 0.02, 3
MARGIN = math.log1p(DELTA)
OF_NODES, OF_LINKS = (
    CasePart(msgspec.json.encode(factors_of(make_record(case=case).case)).decode(), "")
    for case in ({}, {"devices": 2, "nodes": 2})
)
Noise = Callable[[int], np.ndarray]


class Fleet:
    """Nodes and their links with true levels (logarithms), which are measured as often as `repeat` asks for."""

    def __init__(self, levels: np.ndarray, link_levels: np.ndarray, noise: Noise) -> None:
        self.noise = noise
        names = [f"n{number}" for number in range(len(levels))]
        self.truth = dict(zip(names, levels, strict=True))
        nodes = {name: Node(name) for name in names}
        links = {"–".join(ends): Node("–".join(ends), ends=ends) for ends in ring(names)}
        self.truth |= dict(zip(links, link_levels, strict=True))
        self.measured = Measured(nodes, 0, [], links=Measured(links, 0, []))
        for several in (nodes, links):
            self.measure(several, list(several), 0, ROUNDS)

    def measure(self, several: dict[str, Node], names: list[str], run: int, rounds: int) -> None:
        """Add rounds of a run to nodes or links; all drift together."""
        drift = self.noise(rounds) * 5
        for name in names:
            node = several[name]
            found: dict[Round, float] = {}
            for trial, value in enumerate(self.truth[name] + drift + self.noise(rounds)):
                found[run, trial] = math.exp(value)
            column = OF_LINKS if node.ends else OF_NODES
            node.step_s.setdefault(column, {}).setdefault(Unit(name, None), {}).update(found)

    def judged(self) -> FleetResult:
        """Repeat what is suspected until nothing is to be repeated, and judge."""
        found = self.measured
        while again := repeat(found, ALPHA, DELTA):
            assert found.links
            nodes, links = found.repeats, found.links.repeats
            if again.of_nodes:
                nodes += 1
                self.measure(found.nodes, again.of_nodes.nodes, nodes, again.of_nodes.rounds)
            if again.of_links:
                links += 1
                names = ["–".join(ends) for ends in again.of_links.links]
                self.measure(found.links.nodes, names, links, again.of_links.rounds)
            found = Measured(found.nodes, nodes, [], links=Measured(found.links.nodes, links, []))
        return judge(found, ALPHA, DELTA)


def heavy(rng: np.random.Generator) -> Noise:
    """Noise of trials with an infinite fourth moment, and one trial of twenty disturbed."""
    return lambda number: 0.005 * rng.standard_t(3, number) + (rng.random(number) < 0.05) * rng.exponential(0.1, number)


def lower(number: int, of: int) -> float:
    """The lower 99.9% bound of a share (Clopper & Pearson)."""
    return float(stats.beta.ppf(0.001, number, of - number + 1)) if number else 0.0


def slow_link(nodes: int, at: int, by: float) -> np.ndarray:
    levels = np.zeros(nodes)
    levels[at] = math.log1p(by)
    return levels


def slow_adapter(nodes: int, node: int, by: float) -> np.ndarray:
    """Both links of a node are slow; link i is between the nodes i and i + 1."""
    levels = np.zeros(nodes)
    levels[[node - 1, node]] = math.log1p(by)
    return levels


def quiet(number: int) -> np.ndarray:
    """Noise of ±0.1% or so, the same in each run of the tests."""
    return 0.0005 * np.sin(np.arange(number) * 7.0)


def test_a_slow_link_is_named_and_no_node() -> None:
    found = Fleet(np.zeros(6), slow_link(6, 2, 0.1), quiet).judged()
    assert [(cell.node, cell.ends, cell.verdict) for cell in found.named] == [("n2–n3", ["n2", "n3"], "slower")]
    assert found.named[0].shift == pytest.approx(0.1, abs=0.005)
    assert not any(node.slow_links for node in found.nodes)
    assert found.headline == (
        "no outlier: none of 6 nodes differs significantly from the others by more than 2%; "
        "1 of 6 links is slower than the others: "
        f"n2–n3 by {found.named[0].shift:.1%} ({found.named[0].name})"
    )
    assert found.against == "all other links"
    assert not found.is_ok


@pytest.mark.parametrize("nodes", [4, 5, 9])
def test_a_node_all_of_whose_links_are_slow_is_named_as_a_node(nodes: int) -> None:
    """Of four links, two are slow: the others are not called fast."""
    found = Fleet(np.zeros(nodes), slow_adapter(nodes, 2, 0.1), quiet).judged()
    assert sorted((cell.node, cell.verdict) for cell in found.named) == [("n1–n2", "slower"), ("n2–n3", "slower")]
    assert [node.node for node in found.nodes if node.slow_links] == ["n2"]
    assert "; all links of n2 are slower than the others, by 10.0% or more (" in found.headline
    assert "links are" not in found.headline.replace("all links of n2 are", "")


def test_of_three_links_a_slow_one_is_found_and_two_are_not() -> None:
    assert [cell.node for cell in Fleet(np.zeros(3), slow_link(3, 0, 0.1), quiet).judged().named] == ["n0–n1"]
    assert Fleet(np.zeros(3), slow_adapter(3, 1, 0.1), quiet).judged().is_ok


def test_a_link_that_is_faster_is_no_suspect() -> None:
    found = Fleet(np.zeros(6), slow_link(6, 2, -0.1), quiet).judged()
    assert (found.suspicions, found.is_ok) == (0, True)


def test_one_link_of_two_nodes_is_not_judged() -> None:
    found = Fleet(np.zeros(2), np.zeros(1), quiet).judged()
    assert found.is_ok
    assert "fewer than 3 links: no outlier can be identified" in found.doubts


def test_suspicions_of_nodes_and_links_are_corrected_together() -> None:
    """Two suspicions: each p is that of 13 rounds of 13, doubled for the looks, and for both."""
    nodes = slow_link(6, 1, 0.08)
    found = Fleet(nodes, slow_link(6, 2, 0.1), quiet).judged()
    assert sorted(cell.node for cell in found.named) == ["n1", "n2–n3"]
    assert found.suspicions == 2
    assert {cell.rounds for cell in found.named} == {13}
    assert [cell.p_adjusted for cell in found.named] == pytest.approx([2 * 2 * 2**-13] * 2)
    assert found.against == "all other nodes and all other links"


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 400), (5, 300), (16, 150), (64, 60), (300, 12)])
@pytest.mark.parametrize("spread", [0.0, DELTA, 2 * DELTA])
def test_links_like_the_others_are_named_no_oftener_than_told(nodes: int, fleets: int, spread: float) -> None:
    """Nodes and links together, where they differ by nature, by up to δ on either side."""
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(fleets):
        fleet = Fleet(*rng.uniform(-spread / 2, spread / 2, (2, nodes)), heavy(rng))
        for cell in fleet.judged().named:
            others = [
                level
                for name, level in fleet.truth.items()
                if name != cell.node and ("–" in name) == ("–" in cell.node)
            ]
            if abs(fleet.truth[cell.node] - np.median(others)) <= MARGIN * (1 + 1e-9):
                wrong += 1
                break
    assert lower(wrong, fleets) <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [4, 5, 64])
def test_a_link_exactly_at_the_limit_is_named_no_oftener_than_told(nodes: int) -> None:
    """The worst case of the hypothesis, of a node and of a link at once."""
    rng = np.random.default_rng(12)
    fleets = 400 if nodes < 64 else 60
    wrong = 0
    for _ in range(fleets):
        found = Fleet(slow_link(nodes, 0, DELTA), slow_link(nodes, 1, DELTA), heavy(rng)).judged()
        wrong += bool(found.named)
    assert lower(wrong, fleets) <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("by", [0.05, 0.2])
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 150), (5, 150), (64, 60), (300, 12)])
def test_a_slow_link_is_found_among_any_number(nodes: int, fleets: int, by: float) -> None:
    rng = np.random.default_rng(13)
    found = 0
    for _ in range(fleets):
        levels, links = rng.uniform(-DELTA / 4, DELTA / 4, (2, nodes))
        result = Fleet(levels, links + slow_link(nodes, 1, by), heavy(rng)).judged()
        found += [cell.node for cell in result.named] == ["n1–n2"]
        assert not any(node.slow_links for node in result.nodes)
    assert found / fleets >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("by", [0.05, 0.2])
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 150), (5, 150), (64, 60), (300, 12)])
def test_a_slow_adapter_is_told_from_slow_links(nodes: int, fleets: int, by: float) -> None:
    rng = np.random.default_rng(14)
    found = 0
    for _ in range(fleets):
        levels, links = rng.uniform(-DELTA / 4, DELTA / 4, (2, nodes))
        result = Fleet(levels, links + slow_adapter(nodes, 2, by), heavy(rng)).judged()
        found += [node.node for node in result.nodes if node.slow_links] == ["n2"]
    assert found / fleets >= (0.85 if nodes == 5 else 0.9)


def names(number: int) -> list[str]:
    return [f"n{at}" for at in range(number)]


def test_small_rings_by_hand() -> None:
    assert ring(names(1)) == []
    assert ring(names(2)) == [("n0", "n1")]
    assert ring(names(3)) == [("n0", "n1"), ("n1", "n2"), ("n2", "n0")]
    assert disjoint(ring(names(2))) == [[("n0", "n1")]]
    assert disjoint(ring(names(3))) == [[("n0", "n1")], [("n1", "n2")], [("n2", "n0")]]
    assert disjoint(ring(names(4))) == [[("n0", "n1"), ("n2", "n3")], [("n1", "n2"), ("n3", "n0")]]


@pytest.mark.parametrize("number", [*range(3, 60), 300, 1001])
def test_each_node_has_two_links_and_none_is_in_two_of_a_group(number: int) -> None:
    links = ring(names(number))
    assert set(Counter(end for link in links for end in link).values()) == {2}
    groups = disjoint(links)
    assert len(groups) == (2 if number % 2 == 0 else 3)
    assert sorted(link for group in groups for link in group) == sorted(links)
    for group in groups:
        assert len({end for link in group for end in link}) == 2 * len(group)
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1


def test_links_that_share_no_node_are_measured_at_once() -> None:
    links = ring(names(12))[::3]
    assert disjoint(links) == [links]
