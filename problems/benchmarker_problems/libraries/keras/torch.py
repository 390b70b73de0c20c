"""Models of Keras in PyTorch. Shapes: B batch, H height, W width, C channels."""

import os
from dataclasses import replace
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

# isort: split
import keras
from torch import Tensor, nn

from benchmarker import Case, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework, scope
from benchmarker_problems.libraries.keras import Keras, models
from benchmarker_problems.libraries.keras.models import names
from benchmarker_problems.libraries.torch import Fed, FedCalls, describe_workload
from benchmarker_problems.own.arguments import Inputs
from benchmarker_problems.own.workload import workload

__all__ = ["build_workload", "describe_workload", "names"]


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Keras, data: Inputs) -> Workload:
    """Build a step: the results of the model; its loss and gradients; or a step of AdamW on its loss.

    As for any library's model in PyTorch, what is not compiled is not verified once more after timing.
    """
    if case.compile:
        raise UserError("torch.compile breaks a model of Keras into pieces, most of which stay eager; omit --compile")
    models.require("torch")
    made = workload(_KerasCalls(framework, case, problem, data), data)
    return replace(made, verify=lambda _: None, suspicions=list)


class Called(nn.Module):
    """A model of Keras that computes where its images are, as in training or not.

    Its variables are parameters here, in the order that they have in any framework; those of Keras' own modules are not
    all.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.call = model.__call__
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        self.weights = nn.ParameterList(variable.value for variable in variables)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [B, classes] of images [B, H, W, C]."""
        with keras.device(str(images.device)):
            logits: Tensor = self.call(images, training=self.training)
        return logits


class _KerasCalls(FedCalls):
    problem: Keras

    def made(self, function: str, precision: str) -> Fed:
        """Return the model on the device, in the type of the precision, with weights from the seed of the case."""
        with keras.device(str(self.framework.device)):
            model: Any = models.build(self.problem, precision, self.case.seed)
        if self.case.measuring.profiling != "no":
            models.mark(model, self.problem.depth, scope)
        trains = self.case.mode != "inference"
        return Fed(Called(model).train(trains), trains)
