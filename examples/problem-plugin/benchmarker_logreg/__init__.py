"""Logistic regression with several classes: softmax(X·W + b), trained by gradient descent on the cross-entropy.

Shapes: B samples per batch, D features, C classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, hookimpl

LEARNING_RATE = 1.0
"""Stable at any size: the curvature of the loss is at most |x, 1|² / 2 = 1.1 here (Böhning, 1992), and 1 < 2 / 1.1."""


@dataclass(frozen=True)
class Logreg(Problem):
    """`inference` returns the probability of each class; `training` takes a step and returns the loss."""

    summary = "logistic regression softmax(X·W + b): probabilities, or a step of gradient descent"
    accelerator = {"batch_size": 8192, "features": 4096}
    cost_formula = "flops = 2·B·D·C, twice that in training; bytes = samples, weights and results once"

    batch_size: Annotated[int, Meta(ge=1, description="samples per step")] = 256
    features: Annotated[int, Meta(ge=1, description="features of a sample")] = 1024
    classes: Annotated[int, Meta(ge=2, description="number of classes")] = 1000

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """The matrix product, and the softmax or the loss that follows it."""
        return {"logits": 1, "softmax" if mode == "inference" else "loss": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """The backward pass adds one product of the same size, dW = Xᵀ·d(logits); X needs no gradient."""
        item = PRECISIONS[precision].parameter_bytes
        product_flops = 2 * self.batch_size * self.features * self.classes
        samples_bytes = self.batch_size * self.features * item
        weights_bytes = (self.features + 1) * self.classes * item
        if mode == "inference":
            probabilities_bytes = self.batch_size * self.classes * item
            return Cost(product_flops, samples_bytes + weights_bytes + probabilities_bytes, samples=self.batch_size)
        labels_bytes = 8 * self.batch_size
        return Cost(2 * product_flops, samples_bytes + labels_bytes + 2 * weights_bytes, samples=self.batch_size)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw samples of norm about 1 around the centre of their class, and a nonzero bias to detect its omission."""
        dtype = np.float64 if precision == "fp64" else np.float32
        centres_CD = rng.standard_normal((self.classes, self.features), dtype=dtype) / dtype(self.features**0.5)

        def draw() -> Mapping[str, np.ndarray]:
            labels_B = rng.integers(self.classes, size=self.batch_size)
            noise_BD = rng.standard_normal((self.batch_size, self.features), dtype=dtype)
            return {"x": centres_CD[labels_B] + noise_BD * dtype(0.5 / self.features**0.5), "labels": labels_B}

        weights = {
            "w": rng.standard_normal((self.features, self.classes), dtype=dtype),
            "b": rng.standard_normal(self.classes, dtype=dtype),
        }
        return Data(weights, tuple(draw() for _ in range(batches)))

    def small(self) -> Self:
        """Return a size whose dimensions all differ."""
        return replace(self, batch_size=48, features=40, classes=8)

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the probabilities; or take a step of gradient descent, and return the loss before it."""
        logits_BC = batch["x"] @ weights["w"] + weights["b"]
        powers_BC = np.exp(logits_BC - logits_BC.max(axis=1, keepdims=True))
        probabilities_BC = powers_BC / powers_BC.sum(axis=1, keepdims=True)
        if mode == "inference":
            return {"probabilities": probabilities_BC}
        own = np.arange(self.batch_size), batch["labels"]
        loss = -np.log(probabilities_BC[own]).mean()
        d_logits_BC = probabilities_BC / self.batch_size
        d_logits_BC[own] -= 1 / self.batch_size
        weights["w"][...] -= LEARNING_RATE * (batch["x"].T @ d_logits_BC)
        weights["b"][...] -= LEARNING_RATE * d_logits_BC.sum(axis=0)
        return {"loss": loss}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the logistic regression problem."""
    return Logreg
