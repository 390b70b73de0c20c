"""What many agents cost their parent: time until all have answered, messages per second, its CPU time and its memory.

Real agents are those of a gang over nodes, all on this machine. Played ones are programs of some kB that answer what an
agent answers, and then tell a number of progress events as fast as they can be heard.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarker import Launcher
from benchmarker.agent.messages import FromRank, Here
from benchmarker.agent.remote import PROGRAM, Nodes, RemoteRank, agents
from benchmarker.machine import description
from benchmarker.machine.software import installed
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import Request

PLAYED = 'cat "$0/here"; read begin || exit; cat "$0/events"; exec cat >/dev/null'
"""Answer, wait to be told to begin, tell all events, and stay until standard input ends."""
LIMIT_S = 300.0
HEADINGS = ("agents", "all answered", "CPU until then", "messages/s", "CPU a message", "all ended", "peak memory")
"""All of the parent."""


class OnThisMachine(Launcher):
    """Runs the program of each node beside this one, or a played agent instead."""

    def __init__(self, played: Path | None) -> None:
        self.played = played

    def command(self, nodes: Sequence[str], program: Sequence[str]) -> Sequence[str]:
        """Return the program, or the played agent."""
        assert program == PROGRAM
        return program if self.played is None else ["/bin/sh", "-c", PLAYED, str(self.played)]

    def _none(self, *_: Any) -> Any:
        raise NotImplementedError

    allocation: Any = _none
    directives: Any = _none
    submit: Any = _none
    states: Any = _none
    cancel: Any = _none


@click.command()
@click.option("--agents", "numbers", default="4,64,512", show_default=True, help="Numbers of agents.")
@click.option("--messages", default=200, show_default=True, help="Events of each played agent.")
@click.option("--real", is_flag=True, help="Start real agents, which take some 40 MB each.")
def main(numbers: str, messages: int, real: bool) -> None:
    """Print what N agents cost their parent."""
    here = Here(description.describe(), installed())
    print("  ".join(f"{text:>14}" for text in HEADINGS))
    for number in map(int, numbers.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            events = [FromRank(rank=0, event={"progress": [at, 0.01]}) for at in range(messages)]
            (folder / "here").write_bytes(msgspec.json.encode(here) + b"\n")
            (folder / "events").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in events))
            row = _measured(number, 0 if real else messages, here, None if real else folder)
            print("  ".join(f"{text:>14}" for text in row), flush=True)


def _measured(number: int, messages: int, here: Here, played: Path | None) -> list[str]:
    """Start agents, hear their events, and end them; returns a row of the table."""
    heard = 0

    def hear(event: object) -> None:
        nonlocal heard
        heard += 1

    nodes = Nodes(tuple(f"node{at}" for at in range(number)), OnThisMachine(played), here.installed)
    times = [(time.monotonic(), _cpu_s())]
    with agents(nodes) as found:
        assert not any(agent.lost for agent in found)
        times.append((time.monotonic(), _cpu_s()))
        if messages:
            for agent in found:
                agent.begin([RemoteRank(0, agent, hear)], [Request(task="trial", framework="toy")], [Path("log")])
            assert not listen(found, time.monotonic() + LIMIT_S, lambda: heard == number * messages)
            assert heard == number * messages
        times.append((time.monotonic(), _cpu_s()))
    times.append((time.monotonic(), _cpu_s()))
    (answered_s, answered_cpu_s), (heard_s, heard_cpu_s), (ended_s, _) = (
        tuple(after - before for before, after in zip(*pair, strict=True)) for pair in pairwise(times)
    )
    rates = [f"{heard / heard_s:,.0f}", f"{heard_cpu_s / heard * 1e6:.1f} µs"] if heard else ["-", "-"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return [str(number), f"{answered_s:.2f} s", f"{answered_cpu_s:.2f} s", *rates, f"{ended_s:.2f} s", f"{memory} MiB"]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
