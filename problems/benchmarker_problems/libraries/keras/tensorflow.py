"""Models of Keras in TensorFlow: a step is one function that XLA compiles, of variables that it updates in place."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

# isort: split
import keras
import numpy as np
import tensorflow as tf

from benchmarker import STORED_FLOATS, Case, CountedBy, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.tensorflow import CPU, DTYPES, TensorFlow
from benchmarker_problems.libraries.keras import Keras, models
from benchmarker_problems.libraries.keras.models import names
from benchmarker_problems.own.arguments import Inputs, results
from benchmarker_problems.own.workload import Calls, workload
from benchmarker_problems.steps import ADAMW

__all__ = ["build_workload", "describe_workload", "names"]

Arguments = dict[str, Any]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type that is stored, but for training in fp16, which cannot hold AdamW's ε."""
    of_training = tuple(name for name in STORED_FLOATS if name != "fp16")
    return Support({"inference": STORED_FLOATS, "forward_backward": STORED_FLOATS, "training": of_training})


@hookimpl
def build_workload(framework: TensorFlow, case: Case, problem: Keras, data: Inputs) -> Workload:
    """Build a step: the results of the model; its loss and gradients; or a step of AdamW on its loss."""
    models.require("tensorflow")
    return workload(_KerasCalls(framework, case, problem, data), data)


@dataclass(frozen=True)
class Weighted:
    """A model, and its weights as variables of their own: those that are trained, and others, such as statistics.

    Of each trained weight there are the two moments of AdamW, if it trains, and a counter of steps.
    """

    model: keras.Model
    trained: list[Any]
    others: list[Any]
    moments: list[tuple[Any, Any]]
    steps: list[Any]
    precision: str

    @property
    def state(self) -> tuple[Any, ...]:
        """What a step reads, and may update."""
        return self.trained, self.others, self.moments, self.steps


class _KerasCalls(Calls[Arguments]):
    framework: TensorFlow
    problem: Keras

    def made(self, function: str, precision: str) -> Weighted:
        """Return the model in the type of the precision, with weights from the seed of the case."""
        trains = self.case.mode == "training"
        with tf.device(CPU):
            model = models.build(self.problem, precision, self.case.seed)
            trained, others = (
                [tf.Variable(variable.value, trainable=is_trained) for variable in several]
                for is_trained, several in ((True, model.trainable_variables), (False, model.non_trainable_variables))
            )
            zeros = [tf.zeros_like(variable) for variable in trained] if trains else []
            moments = [(tf.Variable(each, trainable=False), tf.Variable(each, trainable=False)) for each in zeros]
            steps = [tf.Variable(tf.zeros((), tf.float64), trainable=False)] if trains else []
        if self.case.measuring.profiling != "no":
            models.mark(model, self.problem.depth, _scope)
        return Weighted(model, trained, others, moments, steps, precision)

    def has_weights(self, function: Any) -> bool:
        """Return True."""
        return True

    def put(self, batch: Mapping[str, np.ndarray], precision: str) -> Arguments:
        """Return the images in the type of the precision, and the labels."""
        dtypes = {"images": DTYPES[precision], "labels": None}
        return {name: self.framework.put(value, dtypes[name]) for name, value in batch.items()}

    def step(self, function: Weighted, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step in the mode of the case, which is always compiled."""
        return partial(self._compiled(function), *function.state)

    def _compiled(self, function: Weighted) -> Any:
        """Return the step as a function of variables and arguments.

        Models of one precision differ in their weights alone, so that their steps are compiled once.
        """
        if function.precision not in self.compiled:
            modes = {"inference": self._inference, "forward_backward": self._forward_backward}
            step = modes.get(self.case.mode, self._training)
            self.compiled[function.precision] = self.framework.compiled(partial(step, function.model))
        return self.compiled[function.precision]

    @cached_property
    def compiled(self) -> dict[str, Any]:
        """Compiled steps by precision."""
        return {}

    def _results(self, model: keras.Model, trained: Any, others: Any, arguments: Arguments, *, training: bool) -> Any:
        """Return the logits [B, classes], and update the other variables in training."""
        values = ([tf.convert_to_tensor(variable) for variable in several] for several in (trained, others))
        with tf.name_scope(self.problem.measured):
            logits, updated = model.stateless_call(*values, arguments["images"], training=training)
        if training:
            for variable, value in zip(others, updated, strict=True):
                variable.assign(value)
        return logits

    def _inference(self, model: keras.Model, trained: Any, others: Any, _: Any, __: Any, arguments: Arguments) -> Any:
        return {"0": self._results(model, trained, others, arguments, training=False)}

    def _gradients(self, model: keras.Model, trained: Any, others: Any, arguments: Arguments) -> tuple[Any, Any]:
        """Return the mean cross-entropy with the labels, and the tape that has recorded it."""
        with tf.GradientTape() as tape:
            logits = self._results(model, trained, others, arguments, training=True)
            of_samples = tf.nn.sparse_softmax_cross_entropy_with_logits(arguments["labels"], logits)
            loss = tf.reduce_mean(of_samples)
        return loss, tape

    def _forward_backward(
        self, model: keras.Model, trained: Any, others: Any, _: Any, __: Any, arguments: Arguments
    ) -> Any:
        loss, tape = self._gradients(model, trained, others, arguments)
        cotangent = np.random.default_rng(self.case.seed).standard_normal()  # as in PyTorch
        return {"loss": loss, "gradients": tape.gradient(loss, trained, tf.constant(cotangent, loss.dtype))}

    def _training(
        self, model: keras.Model, trained: Any, others: Any, moments: Any, steps: Any, arguments: Arguments
    ) -> Any:
        loss, tape = self._gradients(model, trained, others, arguments)
        gradients = tape.gradient(loss, trained)
        with tf.name_scope("optimizer"):
            adamw(trained, gradients, moments, steps[0])
        return loss

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results by name, and all gradients together: those of some weights are nothing but rounding."""
        on_host = tf.nest.map_structure(lambda value: np.asarray(value.numpy()), result)
        if self.case.mode != "forward_backward":
            return results(on_host, np.ndarray)
        gradients = results(on_host["gradients"], np.ndarray).values()
        together = np.concatenate([value.ravel() for value in gradients])
        return {**results(on_host["loss"], np.ndarray), "gradients": together}

    def contents(self, arguments: Arguments) -> None:
        """Return None: TensorFlow's tensors are immutable."""

    def overwrite(self, arguments: Arguments, batch: Mapping[str, np.ndarray]) -> bool:
        """Return False: TensorFlow's tensors are immutable."""
        return False

    def flops(self, function: Weighted, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Count the arithmetic of the ops of the step whose FLOPs TensorFlow knows, before XLA compiles them."""
        profiler = tf.compat.v1.profiler
        graph = self._compiled(function).get_concrete_function(*function.state, arguments).graph
        options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
        counted = profiler.profile(graph, options=options.with_empty_output().build()).total_float_ops
        return (int(counted), "tensorflow") if counted > 0 else None


def _scope(name: str) -> AbstractContextManager[Any]:
    """Mark layers that differ in a number, which have a `*` for it; a scope of TensorFlow cannot have one."""
    scope: AbstractContextManager[Any] = tf.name_scope(name.replace("*", "N"))
    return scope


def adamw(trained: Any, gradients: Any, moments: Any, steps: Any) -> None:
    """Update variables and their moments by AdamW, with the settings of all frameworks."""
    s = ADAMW
    steps.assign_add(tf.ones_like(steps))
    for weight, gradient, (first, second) in zip(trained, gradients, moments, strict=True):
        first.assign(s.beta_1 * first + (1 - s.beta_1) * gradient)
        second.assign(s.beta_2 * second + (1 - s.beta_2) * gradient**2)
        by_first, by_second = (tf.cast(1 - beta**steps, weight.dtype) for beta in (s.beta_1, s.beta_2))
        moved = first / by_first / (tf.sqrt(second / by_second) + s.eps)
        decay = s.weight_decay * weight if len(weight.shape) > 1 else 0
        weight.assign_sub(s.learning_rate * (moved + decay))
