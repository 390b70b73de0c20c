"""Pairs of neighbours: each node has two, and pairs that are measured at once share no node."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarker.fleet.links import disjoint, ring


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
