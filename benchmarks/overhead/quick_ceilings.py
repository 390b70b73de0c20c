"""Compare the quick ceilings with the thorough ones: both as the command line measures them, one after the other.

The quick ones are measured before and after the thorough ones, so that a machine that becomes slower meanwhile shows in
their range. A ratio is that of the highest over frameworks, which is what a roof is made of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import click

PER_SIDE = 2


@click.command()
@click.option("--framework", help="Frameworks to measure with. [default: all]")
@click.option("--precision", default="fp32", show_default=True)
@click.option("--trials", default=5, show_default=True, help="Trials of the thorough measurement.")
def main(framework: str | None, precision: str, trials: int) -> None:
    """Print quick / thorough for each resource."""
    words = [f"--precision={precision}", *([f"--framework={framework}"] if framework else [])]
    seconds: list[float] = []
    thorough_s: list[float] = []
    quick = [_ceilings(words, seconds) for _ in range(PER_SIDE)]
    thorough = _ceilings([*words, "--thorough", f"--trials={trials}"], thorough_s)
    quick += [_ceilings(words, seconds) for _ in range(PER_SIDE)]
    click.echo(f"quick: {min(seconds):.0f} to {max(seconds):.0f} s; thorough: {thorough_s[0]:.0f} s")
    click.echo("resource        thorough   quick / thorough: median (range)")
    ratios = []
    for resource, value in thorough.items():
        own = [found[resource] / value for found in quick if resource in found]
        ratios += own
        click.echo(f"{resource:<14} {value / 1e9:>9.4g} G   {median(own):.3f} ({min(own):.3f} to {max(own):.3f})")
    click.echo(f"all: {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def _ceilings(words: list[str], seconds: list[float]) -> dict[str, float]:
    """Return the highest ceiling of each resource; adds how long it took."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarker", "ceilings", *words, "--json"],
            cwd=folder,
            env={**os.environ, "BENCHMARKER_CEILINGS": folder},
            stdout=subprocess.PIPE,
            check=True,
        )
    seconds.append(time.monotonic() - begun_s)
    highest: dict[str, float] = {}
    for each in json.loads(done.stdout):
        highest[each["resource"]] = max(each["value"], highest.get(each["resource"], 0.0))
    return highest


if __name__ == "__main__":
    main()
