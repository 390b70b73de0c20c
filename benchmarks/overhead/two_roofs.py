"""Hold steps of text generation against the roof of each framework: do pieces alone explain how long they take.

Prefill and decode of GPT-2 small and of a Llama of its size, with a key for three queries, at batch 1 and 8, in JAX
and PyTorch: `ladder` measures the pieces and the step, and `predict` holds the step against its two roofs. What is
measured is kept in a folder, so that the program continues where it was interrupted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import click

MODELS = {"gpt2": ["--problem=gpt2"], "llama": ["--problem=llama", "--n-kv-head=4"]}
PHASES = {
    "decode": ["--phase=decode", "--depth=256", "--new-tokens=17"],
    "prefill": ["--phase=prefill", "--prompt-len=128"],
}
SHORT = ("--framework=jax,torch", "--seconds=0.2", "--profile-steps=3", "--measure")
EXPLAINED = (0.85, 1.15)
"""Shares of a step between which its framework's own roof explains it; otherwise what is missing is named."""
NAMED = 3
"""Parts that are named at most."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default="build/two-roofs")
@click.option("--trials", default=3, show_default=True, help="Rounds; there are intervals from six on.")
def main(folder: Path, trials: int) -> None:
    """Measure what FOLDER lacks, and print and store a table of it all, FOLDER/two-roofs.txt."""
    lines = [f"{'model':<6} {'phase':<7} batch {'':<5} {'measured':>9}  machine's roof       its own roof"]
    for (model, of_model), (phase, of_phase), batch in product(MODELS.items(), PHASES.items(), (1, 8)):
        results = folder / f"{model}-{phase}-{batch}"
        words = [*of_model, *of_phase, f"--batch-size={batch}", *SHORT, f"--trials={trials}"]
        for step in predicted(results, words)["steps"]:
            name = f"{model:<6} {phase:<7} {batch:>5} {step['framework']:<5}"
            shares = "  ".join(f"{share(step[roof]):<19}" for roof in ("of_machine", "of_own"))
            of_step = [f"{name} {1e3 * step['measured_s']:>6.1f} ms  {shares}".rstrip(), *missing(step)]
            click.echo("\n".join(of_step), err=True)
            lines += of_step
    text = "\n".join(lines)
    (folder / "two-roofs.txt").write_text(f"{text}\n", "utf-8")
    click.echo(text)


def predicted(results: Path, words: list[str]) -> dict[str, Any]:
    """Return the predictions of a ladder, which is measured if its results are not all there."""
    done = results.with_suffix(".done")
    if not done.exists():
        resume = ["--resume"] if results.exists() and any(results.iterdir()) else []
        benchmarker("ladder", *words, f"--results={results}", *resume)
        done.touch()
    found: dict[str, Any] = json.loads(benchmarker("predict", str(results), "--json"))
    return found


def benchmarker(*words: str) -> str:
    """Return what a command prints; ends the program as the command ended if it failed."""
    done = subprocess.run([sys.executable, "-m", "benchmarker", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def share(ratio: dict[str, float | None] | None) -> str:
    """Return a share of the measured time with its interval."""
    if ratio is None:
        return "-"
    ends = "" if ratio["low"] is None else f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    return f"{ratio['value']:.2f}{ends}"


def missing(step: dict[str, Any]) -> list[str]:
    """Return a line for each part that is furthest from its own roof, if that does not explain a step."""
    if step["of_own"] is None or EXPLAINED[0] <= step["of_own"]["value"] <= EXPLAINED[1]:
        return []
    is_slower = step["of_own"]["value"] < 1
    known = [part for part in step["parts"] if part["beyond_s"] and (is_slower or part["kind"] != "other")]
    known.sort(key=lambda part: part["beyond_s"], reverse=is_slower)
    named = [(part["name"], part["beyond_s"], part["beyond_s"] / step["measured_s"]) for part in known[:NAMED]]
    return [f"       {name}: {1e3 * beyond_s:+.1f} ms, {of_step:+.0%} of a step" for name, beyond_s, of_step in named]


if __name__ == "__main__":
    main()
