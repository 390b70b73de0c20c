"""Simulate series of 40 points with and without a change, and count what each rule says of them."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from rules import of_history, of_otava, of_threshold

from benchmarker.stats.changes import changes

POINTS, CHANGE = 40, 20
NOISES = (0.005, 0.01, 0.02)
SHIFTS = (0.01, 0.02, 0.05)
CORRELATIONS = (0.0, 0.3, 0.6)
OTAVA_SERIES = 200
SEED = 37


def noise(rng: np.random.Generator, series: int, correlation: float, kind: str = "normal") -> np.ndarray:
    """Return autocorrelated noise of variance 1, [series, point]: normal, Student's t with 3, or with rare spikes."""
    new = rng.standard_t(3, (series, POINTS)) / 3**0.5 if kind == "heavy" else rng.standard_normal((series, POINTS))
    made = np.empty_like(new)
    made[:, 0] = new[:, 0]
    for point in range(1, POINTS):
        made[:, point] = correlation * made[:, point - 1] + (1 - correlation**2) ** 0.5 * new[:, point]
    if kind == "spikes":
        made += 8 * np.abs(rng.standard_normal(made.shape)) * (rng.random(made.shape) < 1 / 20)
    return made


def uneven(rng: np.random.Generator, series: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Return noise that is half from trials, with 1 to 10 trials a point, and the variance of each between trials."""
    variances = 1 / rng.integers(1, 11, POINTS)
    daily = noise(rng, series, correlation)
    return daily + rng.standard_normal(daily.shape) * np.sqrt(variances), variances


@click.command()
@click.option("--series", default=4000, show_default=True, help="Series of each kind.")
@click.option("--otava", type=click.Path(path_type=Path), help="A Python that has the package apache-otava.")
def simulate(series: int, otava: Path | None) -> None:
    """Count false alarms, detections, delays, and how often intervals contain the truth."""
    even = np.zeros(POINTS)

    def rules(made: np.ndarray, variances: np.ndarray = even) -> list[tuple[str, np.ndarray, np.ndarray]]:
        found = [("history", *of_history(made, variances)), ("5% rule", *of_threshold(made))]
        return [*found, ("Otava", *of_otava(made[:OTAVA_SERIES], otava))] if otava else found

    print(f"false alarms: series without a change with an alarm at any look, of {series} (Otava: {OTAVA_SERIES})")
    for kind in ("normal", "heavy", "spikes"):
        for correlation in (*CORRELATIONS, 0.8) if kind == "normal" else CORRELATIONS:
            rng = np.random.default_rng([SEED, round(10 * correlation)])
            made = noise(rng, series, correlation, kind)
            for deviation in (0.02,) if kind != "normal" else (0.005, 0.02):
                told = ", ".join(f"{name} {np.mean(alarm > 0):.1%}" for name, alarm, _ in rules(deviation * made))
                print(f"  {kind}, noise {deviation:.1%}, rho {correlation}: {told}", flush=True)
    for correlation in CORRELATIONS:
        made, variances = uneven(np.random.default_rng([SEED, 1]), series, correlation)
        told = ", ".join(f"{name} {np.mean(alarm > 0):.1%}" for name, alarm, _ in rules(made / 100, variances / 1e4))
        print(f"  1 to 10 trials a point, rho {correlation}: {told}", flush=True)
    print(f"a change after {CHANGE} points: found (alarm after it, none before), median delay in points")
    for deviation in NOISES:
        for correlation in CORRELATIONS:
            rng = np.random.default_rng([SEED, 2, round(10 * correlation)])
            flat = deviation * noise(rng, max(200, series // 4), correlation)
            for shift in SHIFTS:
                made = flat.copy()
                made[:, CHANGE:] += np.log1p(shift)
                words = []
                for name, alarm, _ in rules(made):
                    good = alarm > CHANGE
                    delay = f", delay {np.median(alarm[good]) - CHANGE:.0f}" if good.any() else ""
                    words.append(f"{name} {good.mean():.0%}{delay}")
                print(f"  noise {deviation:.1%}, rho {correlation}, {shift:.0%}: {'; '.join(words)}", flush=True)
    print(
        "of changes that history finds: intervals with the truth, of place and of size, and series with another alarm"
    )
    for ratio in (2.5, 5, 10):
        for correlation in CORRELATIONS:
            rng = np.random.default_rng([SEED, 3, round(10 * correlation)])
            made = noise(rng, 300, correlation)
            made[:, CHANGE:] += ratio
            found = [changes(each) for each in made]
            ones = [each[0] for each in found if each]
            place = np.mean([one.first <= CHANGE <= one.last for one in ones])
            size = np.mean([one.low <= ratio <= one.high for one in ones])
            wide = np.mean([one.last - one.first + 1 for one in ones])
            more = np.mean([len(each) > 1 for each in found])
            print(
                f"  {ratio:g} deviations, rho {correlation}: found {len(ones) / len(found):.0%}, place {place:.0%} "
                f"({wide:.1f} points wide), size {size:.0%}, another alarm {more:.1%}",
                flush=True,
            )
