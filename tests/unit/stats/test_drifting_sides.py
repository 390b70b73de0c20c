"""How often intervals contain the truth if sides are measured one after the other and the machine changes."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
DAY_MIN = 1440.0


@pytest.fixture(scope="module")
def simulated():
    spec = importlib.util.spec_from_file_location(
        "drifting_sides", ROOT / "benchmarks/verdicts/calibration/drifting_sides.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)

    def covered(conditions, runs, pause_min=DAY_MIN, pairs=2000):
        rng = np.random.default_rng([7, *runs])
        return module.covered(*module.sides(conditions, pairs, runs, pause_min, rng))

    return module.CONDITIONS, covered


def test_two_runs_a_side_or_more_cover_what_changes_between_them(simulated):
    """But for a single lasting neighbour, whom two runs a side can all meet on one side and none on the other."""
    conditions, covered = simulated
    shares = {each.name: covered(each, (2, 2)) for each in conditions}
    assert 0.86 < shares.pop("one neighbour, 3 h") < 0.93
    assert min(shares.values()) >= 0.93
    assert min(covered(each, (3, 3)) for each in conditions) >= 0.93


def test_one_run_a_side_does_not(simulated):
    """This is why such verdicts are provisional."""
    conditions, covered = simulated
    assert max(covered(each, (1, 1), pairs=200) for each in conditions) < 0.9
    assert min(covered(each, (1, 1), pairs=200) for each in conditions) < 0.3


def test_runs_that_are_near_each_other_do_not_show_what_changes_slowly(simulated):
    conditions, covered = simulated
    (slow,) = (each for each in conditions if each.name == "drift, 6 h")
    assert covered(slow, (3, 3), pause_min=30) < 0.87


def test_the_machine_changes_as_described(simulated):
    """Its spread, its memory, and the share of the time in which neighbours are busy."""
    conditions, _ = simulated
    rng, times = np.random.default_rng(1), np.broadcast_to([0.0, 60.0], (20000, 2))
    drift = next(each for each in conditions if each.name == "drift, 1 h")(times, rng)
    assert drift.std(axis=0) == pytest.approx([0.05, 0.05], rel=0.05)
    assert np.corrcoef(drift.T)[0, 1] == pytest.approx(np.exp(-1), abs=0.03)
    busy = next(each for each in conditions if each.name == "one neighbour, 3 h")(times, rng) / 0.3
    assert busy.mean(axis=0) == pytest.approx([1 / 3, 1 / 3], abs=0.02)
    assert np.corrcoef(busy.T)[0, 1] == pytest.approx(np.exp(-60 * (1 / 180 + 1 / 360)), abs=0.03)
