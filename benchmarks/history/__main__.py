"""Calibrate the change points of `history`: `simulate` with simulated series, `live` with series of this machine."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import click
from live import live
from simulate import simulate


@click.group()
def main() -> None:
    """Measure how often a change point is right."""


main.add_command(live)
main.add_command(simulate)

if __name__ == "__main__":
    main()
