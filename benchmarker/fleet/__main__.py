"""The part of one node of a fleet: `python -m benchmarker.fleet FOLDER STAGE`, started on each node by the launcher."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from benchmarker.api.errors import UserError, terminate
from benchmarker.fleet.member import take_part


def main(folder: str, stage: str) -> int:
    """Take part in a stage, and return the exit status; what is wrong with this node is in its state too."""
    signal.signal(signal.SIGTERM, terminate)
    try:
        take_part(Path(folder), int(stage), sys.stdin.fileno())
    except UserError as error:
        sys.stderr.write(f"benchmarker: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
