"""Compare this project's models with those of libraries as `--problem=transformers` or `torchvision` measures them.

In each of several fresh processes, each model first runs alone, for its memory; then steps of both alternate in random
order. Both have the same sizes, fused attention and, in training, a fused optimizer, AdamW; only our ResNet has SGD
with momentum. The ratio of a process is the median over its pairs; the interval is over processes. With `--fixed`, the
fixed cost of a trial of a library's model is compared with the library's own import and build. On a machine that does
something else besides, set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from duet import ratio
from peer import LEAST_PAIRS, MODES, alternate

from benchmarker import Bench, Data, open_bench
from benchmarker.hooks import parameters, registry
from benchmarker.worker.bench import BATCHES

MODELS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"impl": "fused"},
    "llama": {"impl": "fused", "size": "cs336-small"},
    "bert": {"impl": "fused"},
    "vit": {"impl": "fused"},
    "resnet": {"layout": "channels_first"},
}
"""The options of our models."""
STEPS = 3
"""Steps that memory is measured in."""


@click.command()
@click.option("--only", type=click.Choice(list(MODELS)))
@click.option("--mode", "modes", type=click.Choice(MODES), multiple=True, default=MODES, show_default=True)
@click.option("--processes", type=click.IntRange(min=6), default=6, show_default=True)
@click.option("--seconds", default=6.0, show_default=True, help=f"Time for the pairs; at least {LEAST_PAIRS} run.")
@click.option("--fixed", is_flag=True, help="Compare the fixed cost of a trial with the library's import and build.")
@click.option("--process", hidden=True, nargs=3, help="Run as one of the processes: model, mode, seed.")
def main(
    only: str | None,
    modes: tuple[str, ...],
    processes: int,
    seconds: float,
    fixed: bool,
    process: tuple[str, str, str] | None,
) -> None:
    """Print ours ÷ the library's in time and memory, for each model and mode, as a Markdown table."""
    if process:
        print(one_process(process[0], process[1], int(process[2]), seconds))
        return
    models = [only] if only else list(MODELS)
    if fixed:
        compare_fixed(models, processes)
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before\n")
    print("| model | mode | ours | library | time, ours / library | memory, ours / library |\n" + "| --- " * 6 + "|")
    for model in models:
        for mode in modes:
            found = []
            for seed in range(processes):
                words = [sys.executable, __file__, f"--seconds={seconds}", "--process", model, mode, str(seed)]
                done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
                found.append(json.loads(done.stdout))
            times = [f"{statistics.median(each[side] for each in found):.1f} ms" for side in ("ours_ms", "theirs_ms")]
            time_ratio = ratio([statistics.median(each["logs"]) for each in found])
            cells = [f"`{model}`", mode, *times, f"{time_ratio}", f"{ratio([each['memory_log'] for each in found])}"]
            print(f"| {' | '.join(cells)} |", flush=True)


def of_library(problem: str, params: Any, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the library that has the same model as one of our problems, and the options that make it the same."""
    if problem == "resnet":
        return "torchvision", {
            "model": f"resnet{params.size}",
            "batch_size": params.batch_size,
            "image_size": params.image_size,
        }
    # First: it makes torchvision importable, which transformers imports.
    import benchmarker_problems.libraries.torch  # noqa: F401

    # isort: split
    from transformers_models import configuration

    config, name = configuration(problem, params)
    file = folder / f"{problem}.json"
    file.write_text(json.dumps(config.to_dict()))
    lengths = {} if problem == "vit" else {"seq_len": params.seq_len}
    return "transformers", {"model": name, "config": str(file), "batch_size": params.batch_size, **lengths}


def one_process(model: str, mode: str, seed: int, seconds: float) -> str:
    """Measure both models in one mode; return the log ratios and the median times as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        kind = registry.problem(model)
        params = parameters.convert(kind, parameters.resolve(kind, dict(MODELS[model]), "cpu"))
        library, options = of_library(model, params, Path(folder))
        case = {"framework": "torch", "device": "cpu", "mode": mode, "seed": seed}
        benches = {
            "ours": open_bench(model, **case, **MODELS[model]),  # type: ignore[arg-type]
            "theirs": open_bench(library, **case, **options),  # type: ignore[arg-type]
        }
        data = {side: bench.data(bench.problem, BATCHES) for side, bench in benches.items()}
        order = sorted(benches, reverse=bool(seed % 2))
        memory = {side: peak_bytes(benches[side], data[side]) for side in order}
        built = {side: benches[side].build(benches[side].problem, data[side]) for side in order}
    times = json.loads(alternate(built["ours"].step, built["theirs"].step, seconds, seed))
    return json.dumps({**times, "memory_log": math.log(memory["ours"] / memory["theirs"]), **memory})


def peak_bytes(bench: Bench, data: Data) -> int:
    """Return the most bytes that a model and some steps of it add to what the process holds."""
    give_back()
    before = status_bytes("VmRSS")
    step = bench.build(bench.problem, data).step
    give_back()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    for _ in range(STEPS):
        step()
    return status_bytes("VmHWM") - before


def give_back() -> None:
    """Give memory that nothing holds back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def status_bytes(name: str) -> int:
    """Return what Linux counts of this process, such as its resident set, `VmRSS`, or its peak, `VmHWM`."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


OWN = {
    "transformers": "import transformers; kind = transformers.{model}; "
    "kind._from_config(kind.config_class.from_json_file({config!r}))",
    "torchvision": "import torchvision; torchvision.models.get_model({model!r})",
}
"""What a user runs to import a library and to build a model of it."""
SHORT = {"batch_size": 1, "seq_len": 1, "image_size": 32}
"""Inputs of a step that is as short as can be, so that what is left is the fixed cost."""


def compare_fixed(models: list[str], processes: int) -> None:
    """Print the time of a trial of short steps ÷ that of a process that imports the library and builds its model."""
    print("| model | import and build | trial of short steps | ratio |\n| --- | --- | --- | --- |")
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            kind = registry.problem(model)
            params = parameters.convert(kind, parameters.resolve(kind, dict(MODELS[model]), "cpu"))
            library, options = of_library(model, params, Path(folder))
            own = f"import benchmarker_problems.libraries.torch; {OWN[library].format(**options)}"
            options |= {name: least for name, least in SHORT.items() if name in options}
            pairs = [(seconds_of(own), trial_s(library, options, folder)) for _ in range(processes)]
        medians = [f"{statistics.median(each):.2f} s" for each in zip(*pairs, strict=True)]
        print(f"| `{model}` | {' | '.join(medians)} | {ratio([math.log(t / o) for o, t in pairs])} |", flush=True)


def seconds_of(code: str) -> float:
    """Return the time of a process that runs some code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def trial_s(library: str, options: Mapping[str, Any], folder: str) -> float:
    """Return the time of a trial of one block, which is of as few steps as can be, as the tool tells it."""
    case = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    how = ["--framework=torch", "--device=cpu", "--mode=inference", "--blocks=1", "--seconds=0.1", "--power=none"]
    words = [sys.executable, "-m", "benchmarker", "run", f"--problem={library}", *case, *how, f"--results={folder}"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found = re.search(r"done in ([\d.]+) s", done.stderr)
    assert found, done.stderr
    return float(found[1])


if __name__ == "__main__":
    main()
