"""Experiments with a known true difference: two cases, one of which does slightly more of the same real work."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPEATS = 100


def install(folder: Path) -> None:
    """Register the repeated problem for this process and its workers, until it ends."""
    info = folder / "calibration-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: calibration\nVersion: 1.0\n")
    lines = ["[benchmarker]", "problem.repeated = repeated"]
    lines += [f"workload.repeated.{name} = repeated_workload" for name in ("jax", "torch", "numpy")]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    places = [str(folder), str(HERE)]
    sys.path[:0] = places
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])


class Quiet:
    """A listener that prints nothing and raises RuntimeError if a trial fails."""

    def say(self, text):
        """Do nothing."""

    def begin(self, title, case, left_s):
        """Do nothing."""

    def on_event(self, event):
        """Do nothing."""

    def end(self, records):
        """Raise RuntimeError if a trial failed."""
        for record in records:
            if record.error:
                raise RuntimeError(record.error.message)


def two_cases(ability, work: str, percent: int, timed: int, threads: int | None = None):
    """Return a case of the repeated problem, and one that does its work `percent` % more often in each step."""
    from benchmarker.api.case import CaseRequest, Measuring
    from benchmarker.hooks import registry
    from benchmarker.planning.cases import make_case

    problem = registry.problem("repeated")

    def case(repeats: int):
        asked = CaseRequest(
            problem="repeated",
            threads=threads,
            params={"work": work, "repeats": repeats},
            measuring=Measuring(blocks=timed, seconds=10.0),
        )
        return make_case(asked, problem, ability.info.name, ability)

    return [case(REPEATS), case(REPEATS + percent)]
