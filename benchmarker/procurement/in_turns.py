"""The command that measures two sides in turns, where one machine measured both of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from benchmarker.formatting import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.comparing.matching import Match


def advice(matches: Sequence[Match]) -> str | None:
    """Return how to measure two sides in turns; None if they ran on several machines or have the same cases."""
    hosts = {
        each.machine.host for match in matches for side in (match.baseline, match.contender) for each in side.records
    }
    both = [[shlex.split(side.records[0].command) for side in (each.baseline, each.contender)] for each in matches]
    differ = [(one, two) for one, two in both if one != two]
    if len(hosts) > 1 or not differ:
        return None
    one, two = differ[0]
    common = [word for word in one if word in two]
    words = ["ab" if word == "run" else word for word in common]
    for name, own, other in (("--a", one, two), ("--b", two, one)):
        words.append(f"{name}={' '.join(word for word in own if word not in other)}")
    which = f", here the first of {count(len(matches), 'case')}" if len(matches) > 1 else ""
    return (
        f"{hosts.pop()} measured both sides: in turns, what changes on it meets both alike{which}: {shlex.join(words)}"
    )
