"""Attack the tool, and count what should never happen.

    python benchmarks/attacks [--KIND=COUNT ...] [--seed=1]

- kills: a run is killed at a random time, and resumed. Lost: a trial whose record is missing, doubled or not valid.
- signals: the same with SIGINT, SIGTERM and SIGHUP.
- files: a record, plan, cost file, weights file, reference or bundle with random damage, given to every command that
  reads it. Each must end by itself, without a traceback, with status 0, 1 or 2, and print nothing unprintable.
- job-files: the same with the files of a submitted run, also with pipes, devices and huge files in their place; all
  other runs must be shown.
- job-script: names of folders, options and words that would run something in the script of a job. They must arrive as
  they are, or be refused.
- scheduler: Slurm's programs print nonsense, or what they should with damage.
- server: `serve-load` meets a server that sends floods, bombs, drips, odd figures and text. It must say little, stay
  below 200 MB, and read again what it stored.
- paths: names that are not UTF-8, have line breaks, escape sequences or commands of a shell, or are too long, in every
  path of every command.
- port: strangers come to the port of a process group before, between and after its ranks. Injection: one is taken
  for a rank, or is told something. Hang: the ranks are delayed. Lost: a rank finds the port closed.

The status is 1 if anything was counted. A count of 0 leaves a kind out.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context

import click
import files
import job_files
import job_script
import paths
import port
import runs
import scheduler_output
import server
from tally import Tally, begin_peak, end_peak

KINDS: dict[str, tuple[int, Callable[[int, random.Random], Tally]]] = {
    "kills": (40, runs.kills),
    "signals": (20, runs.signals),
    "files": (2000, files.attacks),
    "job-files": (300, job_files.attacks),
    "job-script": (500, job_script.attacks),
    "scheduler": (300, scheduler_output.attacks),
    "server": (100, server.attacks),
    "paths": (2000, paths.attacks),
    "port": (300, port.attacks),
}
"""The kinds of attack: how many by default, and what makes them."""


def attacked(kind: str, attacks: Callable[[int, random.Random], Tally], count: int, seed: int) -> tuple[Tally, float]:
    """Make the attacks of a kind; return what was counted, and the peak memory of this process in MB."""
    begin_peak()
    tally = attacks(count, random.Random(f"{seed} {kind}"))
    return tally, end_peak(kind, tally)


def main(seed: int, **counts: int) -> None:
    """Run all attacks, and print a line for each kind."""
    click.echo(f"{'kind':12}{'attacks':>9}{'s':>7}{'peak MB':>9}  counted")
    bad = 0
    for kind, (_, attacks) in KINDS.items():
        if count := counts[kind.replace("-", "_")]:
            began = time.monotonic()
            with get_context("fork").Pool(1) as pool:  # so that no kind has the memory of another
                tally, peak = pool.apply(attacked, (kind, attacks, count, seed))
            counted = ", ".join(f"{number} {what}" for what, number in tally.found.items()) or "nothing"
            click.echo(f"{kind:12}{tally.attacks:9}{time.monotonic() - began:7.0f}{peak:9.0f}  {counted}")
            bad += tally.found.total()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    os.environ["BENCHMARKER_CEILINGS"] = tempfile.mkdtemp()
    counts = [click.Option([f"--{kind}"], default=count, show_default=True) for kind, (count, _) in KINDS.items()]
    seed = click.Option(["--seed"], default=1, show_default=True)
    click.Command("attacks", params=[*counts, seed], callback=main, help=__doc__)()
