"""Pauses between the sessions of a run that is spread over time."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarker.formatting import duration_text
from benchmarker.records.consistency import started_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record


def wait_before(number: int, plan: Plan, finished: Collection[Record], say: Callable[[str], None]) -> None:
    """Wait until the pause after the session before round `number` is over; not amid a session, nor before the first.

    Time that has passed since, because the run was interrupted, is part of the pause.
    """
    session = plan.session_of(number)
    if any(record.design.session == session for record in finished):
        return
    ends = [start_s + record.harness.wall_s for record in finished if (start_s := started_at(record)) is not None]
    left_s = max(ends, default=0.0) + plan.pause_s - time.time()
    if session == 0 or left_s <= 0:
        return
    begin = datetime.fromtimestamp(time.time() + left_s).astimezone()
    say(
        f"run {session + 1} of {plan.sessions} begins at {begin:%H:%M:%S}, after a pause of "
        f"{duration_text(plan.pause_s)}"
    )
    time.sleep(left_s)
