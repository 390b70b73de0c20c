"""Words about many nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 4
"""Most nodes, differences or cases that a sentence lists."""


def grouped(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each trouble, with the nodes that have it: `node1, node2: did not start`."""
    by_reason: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        by_reason.setdefault(reason, []).append(node)
    return [f"{named(nodes)}: {reason}" for reason, nodes in by_reason.items()]


def named(nodes: Sequence[str]) -> str:
    """Return the names of nodes, of many only the first ones and their number."""
    more = f" and {len(nodes) - MOST} more" if len(nodes) > MOST else ""
    return f"{', '.join(nodes[:MOST])}{more}"


def listed(texts: Sequence[str]) -> str:
    """Return differences in one text, of many only the first ones and their number."""
    more = f"; and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return f"{'; '.join(texts[:MOST])}{more}"


def name_of_link(ends: Sequence[str]) -> str:
    """Return the name of a link between two nodes."""
    return "–".join(ends)
