"""Links between neighbours: which there are, and which of them share no node, so that they are measured at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Link = tuple[str, str]
"""Two nodes between which is measured."""
MOST_GROUPS = 3
"""Groups in which the links of a ring always fit: each shares a node with at most two others."""


def ring(nodes: Sequence[str]) -> list[Link]:
    """Return the links between neighbours, and between the last and the first: two of each node; of two nodes one."""
    following = [*nodes[1:], nodes[0]] if len(nodes) > 2 else nodes[1:]
    return list(zip(nodes, following, strict=False))


def disjoint(links: Sequence[Link]) -> list[list[Link]]:
    """Return links of a ring in few groups of about the same size, in each of which no two share a node.

    A ring of an even number of nodes has two, of an odd number three, so that the groups are alike.
    """
    for number in range(1, MOST_GROUPS):
        if (found := _in_groups(links, number)) is not None:
            return found
    found = _in_groups(links, MOST_GROUPS)
    assert found is not None
    return found


def _in_groups(links: Sequence[Link], number: int) -> list[list[Link]] | None:
    """Return links in so many groups, each link in the smallest where none shares a node; None if there is none."""
    groups: list[list[Link]] = [[] for _ in range(number)]
    taken: list[set[str]] = [set() for _ in range(number)]
    for link in links:
        free = [at for at in range(number) if not taken[at] & {*link}]
        if not free:
            return None
        chosen = min(free, key=lambda at: len(groups[at]))
        groups[chosen].append(link)
        taken[chosen] |= {*link}
    return groups
