"""Models of timm in PyTorch, for the classification of images."""

# First: it makes torchvision importable.
from benchmarker_problems.libraries.torch import build_workload, describe_workload, prepare_fp64

# isort: split
from collections.abc import Mapping
from typing import Any

import numpy as np
import timm
from torch import nn

from benchmarker_problems.libraries import unknown
from benchmarker_problems.libraries.timm import Timm
from benchmarker_problems.libraries.weights import load

__all__ = ["build_workload", "describe_workload", "prepare_fp64"]


def names() -> list[str]:
    """Return the names of all models."""
    return list(timm.list_models())


def build(problem: Timm, precision: str) -> nn.Module:
    """Return the model with random weights; one that is for a single size of images is built for that of the case."""
    has_one_size = timm.get_pretrained_cfg(problem.model).fixed_input_size
    size = {"img_size": problem.image_size} if problem.image_size and has_one_size else {}
    model: nn.Module = timm.create_model(problem.model, pretrained=False, **size)
    return load(problem, model)


def inputs(problem: Timm, rng: np.random.Generator, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return images [B, C, H, W] and labels; the caller replaces those that are given."""
    if not timm.is_model(problem.model):
        raise unknown("timm", problem.model, names())
    config, size = timm.get_pretrained_cfg(problem.model), problem.image_size
    channels, height, width = config.input_size
    shape = (problem.batch_size, channels, size or height, size or width)
    labels = rng.integers(config.num_classes, size=problem.batch_size)
    return {"x": rng.standard_normal(shape, dtype=np.float32), "labels": labels}
