"""Models of torchvision in PyTorch: classification, segmentation, videos and optical flow."""

# First: it makes torchvision importable.
from benchmarker_problems.libraries.torch import build_workload, describe_workload, prepare_fp64

# isort: split
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from torchvision import models

from benchmarker import UserError
from benchmarker_problems.libraries import unknown
from benchmarker_problems.libraries.torchvision import Torchvision
from benchmarker_problems.libraries.weights import load

__all__ = ["build_workload", "describe_workload", "prepare_fp64"]

FRAMES = 16
"""Frames of a video, as the models' authors train with."""
FLOW_PIXELS = 128
"""Height and width of the two images of an optical flow."""
CLASSES = {"segmentation": 21, "video": 400}
"""Classes of the models' published weights; 1000 of other models."""


def names() -> list[str]:
    """Return the names of all models."""
    return list(models.list_models())


def kind_of(model: str) -> str:
    """Return what a model is for, by the part of torchvision that it is in, such as `segmentation`."""
    if model not in names():
        raise unknown("torchvision", model, names())
    return str(models.get_model_builder(model).__module__).split(".")[2]


def build(problem: Torchvision, precision: str) -> nn.Module:
    """Return the model with random weights, or those of the user."""
    backbone = {"weights_backbone": None} if kind_of(problem.model) == "segmentation" else {}
    model: nn.Module = models.get_model(problem.model, weights=None, **backbone)
    return load(problem, model)


def inputs(problem: Torchvision, rng: np.random.Generator, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return images [B, C, H, W], or videos [B, C, T, H, W], and labels; none of a detector, whose are `given`."""
    kind, batch = kind_of(problem.model), problem.batch_size
    if kind in ("detection", "quantization"):
        if given:
            return {}
        raise UserError(
            f"{problem.model} is for {kind}: its inputs cannot be made, as they are no arrays of one shape; "
            "give them by a file, --inputs=FILE.py"
        )
    size = problem.image_size or _size(problem.model)

    def images(*shape: int) -> np.ndarray:
        return rng.standard_normal((batch, 3, *shape, size, size), dtype=np.float32)

    if kind == "optical_flow":
        return {"image1": images(), "image2": images()}
    shape = (batch, size, size) if kind == "segmentation" else (batch,)
    labels = rng.integers(CLASSES.get(kind, 1000), size=shape)
    name = "input" if problem.model.startswith("lraspp") else "x"
    return {name: images(FRAMES) if kind == "video" else images(), "labels": labels}


def _size(model: str) -> int:
    """Return the height and width for which the published weights of a model were trained."""
    weights: Any = models.get_model_weights(model)
    crop = getattr(weights.DEFAULT.transforms(), "crop_size", None)
    return int(crop[-1]) if crop else FLOW_PIXELS
