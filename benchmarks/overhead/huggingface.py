"""Compare the speed of models in this project with that of Hugging Face `transformers`; if asked, JAX with PyTorch.

In each of several fresh processes, steps of this project's PyTorch model alternate in random order with steps of
transformers' model. Both have the same weights and batches, scaled-dot-product attention, and the same size, precision
and optimizer (fused AdamW). The ratio of each process is the median over its pairs; the interval is over processes.
On a machine that does something else besides, set OMP_NUM_THREADS=1: PyTorch's threads wait for each other in every
product.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import click
from peer import LEAST_PAIRS, MODES, alternate, compare
from transformers_models import PROBLEMS, steps

from benchmarker import UserError
from benchmarker.worker.bench import BATCHES


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--problem", type=click.Choice(PROBLEMS), default="gpt2", show_default=True)
@click.option("--processes", type=click.IntRange(min=6), default=6, show_default=True)
@click.option(
    "--seconds", default=12.0, show_default=True, help=f"Time for the pairs of a process; at least {LEAST_PAIRS} run."
)
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--jax", is_flag=True, help="Compare JAX with PyTorch, too.")
@click.option("--process", hidden=True, nargs=2, help="Run as one of the processes: mode, seed.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(
    problem: str,
    processes: int,
    seconds: float,
    precision: str,
    jax: bool,
    process: tuple[str, str] | None,
    options: tuple[str, ...],
) -> None:
    """Print this project's step time divided by that of transformers, for each mode.

    OPTIONS are those of the problem, such as --size=base or --seq-len=512. Problem moe needs --dispatch=grouped.
    """
    size = {
        name.removeprefix("--").replace("-", "_"): value for name, _, value in (each.partition("=") for each in options)
    }
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise click.UsageError(f"{option}: write options of the problem as --name=value")
    if process:
        one_process(problem, process[0], int(process[1]), seconds, precision, size)
        return
    case = [f"--problem={problem}", f"--precision={precision}", *options]
    compare(__file__, case, processes, seconds)
    if not jax:
        return
    print("\nJAX and PyTorch, each in separate processes, measured with the tool:", flush=True)
    for mode in MODES:
        with tempfile.TemporaryDirectory() as results:
            words = [*case, "--framework=jax,torch", f"--mode={mode}", "--impl=fused"]
            words += [f"--results={results}", "--trials=3", "--blocks=20", "--seconds=15"]
            subprocess.run([sys.executable, "-m", "benchmarker", "run", *words], stderr=subprocess.DEVNULL, check=True)


def one_process(problem: str, mode: str, seed: int, seconds: float, precision: str, size: dict[str, str]) -> None:
    """Time both models alternately in one mode and print the log ratios as JSON."""
    try:
        bench, make_theirs = steps("cpu", mode, precision, problem, seed=seed, **size)
        data = bench.data(bench.problem, BATCHES)
        ours, theirs = bench.build(bench.problem, data).step, make_theirs(data)
    except UserError as error:
        raise click.ClickException(str(error)) from error
    print(alternate(ours, theirs, seconds, seed))


if __name__ == "__main__":
    main()
