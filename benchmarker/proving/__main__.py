"""Try one claim and write its entry: `python -m benchmarker.proving SUITE CLAIM DEVICE FOLDER ENTRY`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarker.api.claim import NotHereError, Outcome, Setting
from benchmarker.files import atomic
from benchmarker.proving.proof import Entry, load_proof


def main(suite: str, name: str, device: str, folder: str, path: str) -> None:
    """Try the claim and write its entry."""
    claim = next(each for each in load_proof(suite).claims if each.name == name)
    start = time.monotonic()
    try:
        outcome = claim.prove(Setting(device, Path(folder)))
    except NotHereError as reason:
        outcome = Outcome("not here", reason=str(reason))
    entry = Entry.of(claim, outcome, device, time.monotonic() - start)
    atomic.write(Path(path), atomic.encode(entry))


if __name__ == "__main__":
    main(*sys.argv[1:])
