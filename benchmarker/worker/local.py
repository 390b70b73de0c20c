"""The local phase: what several devices do with and without communication, to tell what keeps them from scaling.

In an exchange all devices wait for the slowest, so that synchronised steps do not show which one it is. Each turn is
therefore three short blocks, in random order: the step of all; the work of each device without communication, on all
devices at once; and the same on one device alone, each in its turn. What differs between them has one cause each:

    alone        one device has what they share to itself: memory, power, cores
    together     ... and now shares it with the others: contention; the slowest is a straggler
    synchronised ... and now communicates, and waits for the slowest
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarker.records.record import Local

if TYPE_CHECKING:
    import random

    from benchmarker.api.case import Measuring
    from benchmarker.worker.share import Solo

LOCAL_S = 10.0
"""Longest time after which no further turns begin."""
MOST_DEVICES = 256
"""Most devices with a local phase: each is alone once, so its time and its numbers grow with their square."""
SHORTER = 4
"""A block has so many times fewer steps than a timed one; that ranks begin at different times matters as much more."""


def local_phase(team: Solo, timed_steps: int, measuring: Measuring, rng: random.Random) -> Local | str:
    """Time turns of blocks, shorter than the timed ones of `timed_steps`; or return why there are none.

    Each device is alone in as many turns. There are as many turns as blocks are requested, within the time limits.
    """
    devices, steps = team.bench.case.devices, max(1, timed_steps // SHORTER)
    if devices > MOST_DEVICES:
        return f"{devices} devices are too many for each to be alone once; at most {MOST_DEVICES} have a local phase"
    if trouble := next(filter(None, team.all("open_local")), ""):
        return trouble
    local = Local(steps, [], [], [], [])
    deadline = time.perf_counter() + min(measuring.seconds, LOCAL_S)
    while not local.alone_ns or (len(local.alone_ns) + devices <= measuring.blocks and time.perf_counter() < deadline):
        for device in rng.sample(range(devices), devices):
            local.alone_device.append(device)
            for kind in rng.sample(("synchronised", "together", "alone"), 3):
                if kind == "synchronised":
                    local.synchronised_ns.append(team.all("block", steps))
                elif kind == "together":
                    local.together_ns.append([each for rank in team.all("local_together", steps) for each in rank])
                else:
                    local.alone_ns.append(max(team.all("local_alone", device, steps)))
    return local
