"""What many agents cost their parent: time until all have answered, messages per second, its CPU time and its memory.

Real agents are those of a process group over nodes, all on this machine. Played ones are a shell that answers what an
agent answers, and then tells a number of progress events as fast as they can be heard. With `--trials`, they make so
many trials of a run, and what the launcher has started on nodes is counted.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import click
import msgspec

from benchmarker.agent.messages import FromRank
from benchmarker.agent.supervisor import run_group
from benchmarker.machine.description import installed
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import StepsDone, Task

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.played_agents import DONE, Played

EVENTS = 'cat "$0/events"; over'
"""What a played agent does: tell all events."""
LIMIT_S = 300.0
HEADINGS = ("agents", "all answered", "CPU until then", "messages/s", "CPU a message", "all ended", "peak memory")
"""All of the parent."""
HEADINGS_OF_TRIALS = ("agents", "trials", "steps", "a trial", "CPU a trial", "peak memory")


class Real(Played):
    """Runs the program of each node beside this one."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, [""] * number)
        self.installed = installed()

    def command(self, nodes: Sequence[str], program: Sequence[str]) -> Sequence[str]:
        """Return the program."""
        return program


@click.command()
@click.option("--agents", "numbers", default="4,64,512", show_default=True, help="Numbers of agents.")
@click.option("--messages", default=200, show_default=True, help="Events of each played agent.")
@click.option("--real", is_flag=True, help="Start real agents, which take some 40 MB each.")
@click.option("--trials", default=0, help="Make so many trials, and count what is started.")
def main(numbers: str, messages: int, real: bool, trials: int) -> None:
    """Print what N agents cost their parent."""
    print("  ".join(f"{text:>14}" for text in (HEADINGS_OF_TRIALS if trials else HEADINGS)))
    for number in map(int, numbers.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if trials:
                row = _run(Played(folder, [DONE] * number), trials)
            elif real:
                row = _measured(Real(folder, number), 0)
            else:
                events = [FromRank(rank=0, event=StepsDone(at, 0.01)) for at in range(messages)]
                (folder / "events").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in events))
                row = _measured(Played(folder, [EVENTS] * number), messages)
            print("  ".join(f"{text:>14}" for text in row), flush=True)


def _measured(played: Played, messages: int) -> list[str]:
    """Start agents, hear their events, and end them; returns a row of the table."""
    heard, number = 0, len(played.names)

    def on_event(rank: int, event: object) -> None:
        nonlocal heard
        heard += 1

    times = [(time.monotonic(), _cpu_s())]
    with closing(played.agents()) as agents, agents.on(played.names) as found:
        times.append((time.monotonic(), _cpu_s()))
        if messages:
            for agent in found:
                agent.start([Task(kind="trial", framework="toy")], [Path("log")], on_event)
            assert not listen(found, time.monotonic() + LIMIT_S, lambda: heard == number * messages)
            assert heard == number * messages
        times.append((time.monotonic(), _cpu_s()))
    times.append((time.monotonic(), _cpu_s()))
    (answered_s, answered_cpu_s), (heard_s, heard_cpu_s), (ended_s, _) = (
        tuple(after - before for before, after in zip(*pair, strict=True)) for pair in pairwise(times)
    )
    rates = [f"{heard / heard_s:,.0f}", f"{heard_cpu_s / heard * 1e6:.1f} µs"] if heard else ["-", "-"]
    answered = [f"{answered_s:.2f} s", f"{answered_cpu_s:.2f} s"]
    return [str(number), *answered, *rates, f"{ended_s:.2f} s", f"{_peak_MiB()} MiB"]


def _run(played: Played, trials: int) -> list[str]:
    """Make trials of all nodes; returns a row of the table."""
    task = Task(kind="profile", framework="toy", cases=(played.case(),))
    logs = [played.folder / f"{name}.log" for name in played.names]
    start_s, start_cpu_s = time.monotonic(), _cpu_s()
    with closing(played.agents()) as agents:
        for _ in range(trials):
            with agents.on(played.names) as nodes:
                ending = run_group(nodes, task, LIMIT_S, logs, lambda _: None)
            assert ending.exit == 0, ending
    a_trial_s, a_trial_cpu_s = (time.monotonic() - start_s) / trials, (_cpu_s() - start_cpu_s) / trials
    figures = [len(played.names), trials, len(played.steps())]
    return [*map(str, figures), f"{a_trial_s:.2f} s", f"{a_trial_cpu_s:.2f} s", f"{_peak_MiB()} MiB"]


def _peak_MiB() -> int:  # noqa: N802 - a unit
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
