"""The part of one node of a fleet: `python -m benchmarker.fleet FOLDER STAGE`, started on each node by the launcher."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarker.fleet.member import status_of, take_part


def main(folder: str, stage: str) -> int:
    """Take part in a stage, and return the exit status; what is wrong with this node is in its state too."""
    return status_of(lambda: take_part(Path(folder), int(stage), sys.stdin.fileno()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
