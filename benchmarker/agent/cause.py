"""Which of several ranks failed, and why: the first failure that is reported is seldom the cause of the others."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarker.agent.node import RankProcess
from benchmarker.worker.launch import Ending, rank_text
from benchmarker.worker.protocol import Event, Failed


class RankState:
    """What is known about a rank: its worker, whether it is done, its failure, where it is, and on which node."""

    worker: RankProcess

    def __init__(self, number: int, pass_on: Callable[[Event], None]) -> None:
        self.number = number
        self.pass_on = pass_on
        self.done = False
        self.failure: Failed | None = None
        self.failed_s = math.inf
        self.place = ""
        self.waits = False
        self.synchronizes = False
        self.node: str | None = None
        self.failed_with: int | None = None
        self.lost = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will never be heard to."""
        return self.worker.status is not None or bool(self.worker.lost or self.worker.fault)

    def has_failed(self) -> bool:
        """Whether it sent a failure or what is not valid, or ended or was lost before it was done; notes when."""
        over = not self.done and (self.worker.status is not None or bool(self.worker.lost))
        has_failed = self.failure is not None or bool(self.worker.fault) or over
        if has_failed:
            self.failed_s = min(self.failed_s, time.monotonic())
        return has_failed


def ending_of(
    ranks: Sequence[RankState],
    timed_out: bool,
    failed: Sequence[RankState],
    wall_s: float,
    on_event: Callable[[Event], None],
) -> Ending:
    """Return how ranks ended, with the likeliest cause of a failure; passes on its event if there is one."""
    if len(ranks) == 1:
        (rank,) = ranks
        if rank.failure is not None and not timed_out:
            on_event(rank.failure)
        return Ending(rank.worker.status, timed_out, wall_s, rank.worker.fault)
    if timed_out:
        stuck, where = _where(ranks)
        rank = ranks[stuck or 0]
        node = None if stuck is None else rank.node
        return Ending(rank.worker.status, True, wall_s, rank=stuck, where=where, node=node)
    if not failed:
        return Ending(0, False, wall_s)
    cause = min(failed, key=lambda rank: (_likelihood(rank), rank.failed_s))
    if cause.failure is not None and not cause.lost:
        on_event(_of_rank(cause.failure, cause))
    status = cause.worker.status if cause.failed_with is None else cause.failed_with
    return Ending(status, False, wall_s, cause.worker.fault, cause.number, node=cause.node, lost=cause.lost)


def is_consequence(rank: RankState) -> bool:
    """Whether a failure only shows that another rank is gone.

    That is a lost connection, or an abort: libraries abort a process that lost its peers.
    """
    if rank.worker.fault or rank.worker.lost:
        return False
    return rank.worker.status == -signal.SIGABRT if rank.failure is None else rank.failure.lost_peer


def _likelihood(rank: RankState) -> int:
    """Return how likely a failure is to be a consequence of another: the smallest is the cause."""
    status = rank.failed_with
    if rank.worker.fault or rank.lost:
        return 0
    if rank.failure is None:
        return 1 if status is not None and status < 0 and status != -signal.SIGABRT else 3
    return 4 if rank.failure.lost_peer else 2


def _of_rank(event: Failed, rank: RankState) -> Failed:
    """Return a failure that names its rank; a wrong result is that of all."""
    failure = event.failure
    if failure.kind != "check":
        message = f"{rank_text(rank.number, rank.node)}: {failure.message}"
        failure = msgspec.structs.replace(failure, message=message, rank=rank.number, node=rank.node)
    return Failed(failure)


def _where(ranks: Sequence[RankState]) -> tuple[int | None, str]:
    """Return the rank for which the others wait, if it is known, and where all ranks are.

    A rank that synchronizes may itself be slow, or wait within an exchange for one that does not.
    """
    silent = [rank for rank in ranks if not rank.place]
    busy: dict[tuple[bool, str], list[RankState]] = {}
    for rank in ranks:
        if rank.place and not rank.waits:
            busy.setdefault((rank.synchronizes, rank.place), []).append(rank)
    groups = sorted(busy.items(), key=lambda item: (item[0][0], len(item[1])))
    texts = [f"{_ranks(silent)} did not answer"] if silent else []
    texts += [f"{_ranks(busy_ranks)} in {place}" for (_, place), busy_ranks in groups]
    texts += [f"{_ranks(waiting)} waiting"] if (waiting := [rank for rank in ranks if rank.waits]) else []
    first = silent or next((busy_ranks for _, busy_ranks in groups), [])
    alone = bool(silent) or len(groups) == 1 or bool(waiting)
    unlike = alone or (len(groups) > 1 and (groups[0][0][0] < groups[1][0][0] or len(groups[1][1]) > 1))
    return first[0].number if len(first) == 1 and unlike else None, "; ".join(texts)


def _ranks(ranks: Sequence[RankState]) -> str:
    if len(ranks) == 1:
        return rank_text(ranks[0].number, ranks[0].node)
    return f"ranks {', '.join(str(rank.number) for rank in ranks)}"
