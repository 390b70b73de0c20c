"""Classical statistics of a comparison, as other tools report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarker.comparing.results import Classical
from benchmarker.records.step_times import step_times
from benchmarker.stats.classical import describe, rank_sum

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Match


def classical(match: Match) -> Classical | None:
    """Return the classical statistics of a match, or None if a side has no timed block."""
    blocks = [
        np.concatenate([step_times(record) for record in side.records if record.blocks] or [np.array([])])
        for side in (match.baseline, match.contender)
    ]
    if not all(map(len, blocks)):
        return None
    return Classical(
        case=dict(match.case),
        name=match.name,
        baseline=match.baseline.name,
        contender=match.contender.name,
        baseline_blocks=describe(blocks[0]),
        contender_blocks=describe(blocks[1]),
        rank_sum=rank_sum(*blocks),
    )
