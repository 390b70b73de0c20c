"""The software of this machine, by which runs that are to agree in it are compared."""

from __future__ import annotations

from importlib import metadata

from benchmarker.machine import description
from benchmarker.records.job import Installed


def installed() -> Installed:
    """Return the software that this Python would run."""
    distributions = {each.name: each.version for each in metadata.distributions() if each.name}
    return Installed(description.python_version(), description.commit(), dict(sorted(distributions.items())))
