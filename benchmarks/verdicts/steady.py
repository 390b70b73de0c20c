"""Count how often a change of level is found in the blocks of a trial: where there is none, and in the last of them.

    python benchmarks/verdicts/steady.py --series=5000

Logarithms of block durations are normal, Student's t with 2 degrees of freedom, AR(1) with ρ = 0.5, or normal with
disturbances that last five blocks on average and begin in 1% of the blocks.
"""

import click
import numpy as np
from scipy import signal

from benchmarker.stats.steady import change

KINDS = ("normal", "heavy tails", "AR(1) 0.5", "disturbed")
SIZES = 22, 50, 100, 300
SPREADS = 0.01, 0.03, 0.1
SHARES = 0.05, 0.1
CHANGES = 0.05, 0.1, 0.2


def durations(kind: str, spread: float, series: int, blocks: int, rng: np.random.Generator) -> np.ndarray:
    """Return honest series of block durations, one a row."""
    logs = rng.standard_normal((series, blocks))
    if kind == "heavy tails":
        logs = rng.standard_t(2, (series, blocks))
    elif kind == "AR(1) 0.5":
        logs[:, 1:] *= np.sqrt(1 - 0.5**2)
        logs = signal.lfilter([1], [1, -0.5], logs, axis=1)
    elif kind == "disturbed":
        for row, start in np.argwhere(rng.random((series, blocks)) < 0.01):
            logs[row, start : start + rng.geometric(0.2)] += 10
    return np.exp(spread * logs)


def found(several: np.ndarray) -> float:
    """Return in which share of series a change is found."""
    return float(np.mean([change(each) is not None for each in several]))


@click.command()
@click.option("--series", default=5000, help="Series of each kind without a change; with one, a tenth.")
@click.option("--seed", default=1)
def main(series: int, seed: int) -> None:
    """Print how often a change is found."""
    rng = np.random.default_rng(seed)
    print("no change: found")
    for kind in KINDS:
        for spread in SPREADS:
            shares = [f"{n}: {found(durations(kind, spread, series, n, rng)):.2%}" for n in SIZES]
            print(f"  {kind}, spread {spread:.0%}; blocks", ", ".join(shares), flush=True)
    print("the last blocks are slower: found")
    for kind in KINDS[:3]:
        for spread in SPREADS:
            for blocks in SIZES[1:]:
                for last in (round(share * blocks) for share in SHARES):
                    powers = []
                    for size in CHANGES:
                        several = durations(kind, spread, series // 10, blocks, rng)
                        several[:, -last:] *= 1 + size
                        powers.append(f"{size:.0%}: {found(several):.0%}")
                    print(f"  {kind}, spread {spread:.0%}, last {last} of {blocks};", ", ".join(powers), flush=True)


if __name__ == "__main__":
    main()
