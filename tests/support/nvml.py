"""A stand-in for NVIDIA's `libnvidia-ml.so.1`: tests/support/nvml.c."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from support import cards

SOURCE = Path(__file__).with_suffix(".c")
SENTINEL = 1000
"""The code of a fault with which a function gives NVML's number for no value."""


def library() -> Path:
    """The folder with `libnvidia-ml.so.1`, built where these sources were not built before."""
    texts = SOURCE.read_text() + (cards.HERE / "sensor.h").read_text()
    digest = hashlib.sha256(texts.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"benchmarker-fakes-{os.getuid()}", digest)
    cards.build(SOURCE, folder / "libnvidia-ml.so.1")
    return folder


def environment(script: Path) -> dict[str, str]:
    """The variables with which a new process finds the library, and in it the cards of a script."""
    return {"LD_LIBRARY_PATH": str(library()), "FAKE_CARDS": str(script)}
