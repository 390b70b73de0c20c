"""Compare the speed of this project's ResNet in PyTorch with that of torchvision.

In each of several fresh processes, steps of both models alternate in random order. Both have the same size, batches,
layout and optimizer (SGD with momentum, fused).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import cycle
from typing import Any

import click
import numpy as np
import torch
from peer import LEAST_PAIRS, alternate, compare

from benchmarker import Bench, Data, open_bench
from benchmarker.worker.bench import BATCHES
from benchmarker_problems.resnet import SETTINGS, Resnet


@click.command()
@click.option("--size", type=click.Choice(["18", "34", "50", "101", "152"]), default="50", show_default=True)
@click.option("--batch-size", default=4, show_default=True)
@click.option("--image-size", default=224, show_default=True)
@click.option("--layout", type=click.Choice(["channels_first", "channels_last"]), default="channels_last")
@click.option("--processes", type=click.IntRange(min=6), default=6, show_default=True)
@click.option(
    "--seconds", default=12.0, show_default=True, help=f"Time for the pairs of a process; at least {LEAST_PAIRS} run."
)
@click.option("--process", hidden=True, nargs=2, help="Run as one of the processes: mode, seed.")
def main(processes: int, seconds: float, process: tuple[str, str] | None, **options: str | int) -> None:
    """Print this project's step time divided by that of torchvision, for each mode."""
    if not process:
        case = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        compare(__file__, case, processes, seconds)
        return
    mode, seed = process
    bench = open_bench("resnet", "torch", "cpu", precision="fp32", mode=mode, seed=int(seed), **options)  # type: ignore[arg-type]
    data = bench.data(bench.problem, BATCHES)
    print(alternate(bench.build(bench.problem, data).step, theirs(bench, data), seconds, int(seed)))


def theirs(bench: Bench, data: Data) -> Callable[[], Any]:
    """Return a step of torchvision's model on the same batches."""
    problem = bench.problem
    assert isinstance(problem, Resnet)
    made = torchvision_models().get_model(f"resnet{problem.size}")
    layout = torch.channels_last if problem.layout == "channels_last" else torch.contiguous_format
    made = made.to(memory_format=layout)
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = cycle([put(batch, layout) for batch in data.batches])
    if bench.case.mode == "inference":
        made.eval()

        def infer() -> Any:
            images_BCHW, _ = next(batches)
            with torch.inference_mode():
                return made(images_BCHW)

        return infer
    s = SETTINGS
    optimizer = torch.optim.SGD(
        made.train().parameters(), s.learning_rate, s.momentum, weight_decay=s.weight_decay, fused=True
    )

    def train() -> Any:
        images_BCHW, labels_B = next(batches)
        loss = torch.nn.functional.cross_entropy(made(images_BCHW), labels_B)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train


def put(batch: Any, layout: torch.memory_format) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images [B, 3, H, W] and the labels [B] of a batch."""
    images_BHW3, labels_B = batch.values()
    images_BCHW = torch.tensor(np.moveaxis(images_BHW3, -1, 1)).contiguous(memory_format=layout)
    return images_BCHW, torch.tensor(labels_B, dtype=torch.int64)


def torchvision_models() -> Any:
    """Return torchvision.models; its wheels on PyPI declare their operators, not needed here, only beside CUDA."""
    try:
        return import_module("torchvision.models")
    except RuntimeError:  # operator torchvision::nms does not exist
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_module("torchvision.models")


if __name__ == "__main__":
    main()
