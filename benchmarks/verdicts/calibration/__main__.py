"""Calibrate the verdicts: `calibration live` measures how often they are right, `calibration simulate` simulates it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import click
from drifting_sides import simulate_runs
from live import live
from live_runs import live_runs
from simulate import simulate


@click.group()
def main() -> None:
    """Measure how often a verdict is right."""


main.add_command(live)
main.add_command(live_runs)
main.add_command(simulate)
main.add_command(simulate_runs)

if __name__ == "__main__":
    main()
