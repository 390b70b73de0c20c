"""How often a verdict is right: `calibration live` measures it on this machine, `calibration simulate` computes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import click
from live import live
from simulate import simulate


@click.group()
def main() -> None:
    """Tell how often a verdict is right."""


main.add_command(live)
main.add_command(simulate)

if __name__ == "__main__":
    main()
