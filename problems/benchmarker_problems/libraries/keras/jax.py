"""Models of Keras in JAX: a step is one jitted function of the weights, which Keras calls stateless."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

# isort: split
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
from jax import Array

from benchmarker import FLOATS, Case, CountedBy, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.libraries.keras import Keras, models
from benchmarker_problems.libraries.keras.models import names
from benchmarker_problems.own.arguments import Inputs, results
from benchmarker_problems.own.jax import Arguments, JaxCalls
from benchmarker_problems.own.workload import workload
from benchmarker_problems.steps import ADAMW

__all__ = ["build_workload", "describe_workload", "names"]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type; a model may not support all of them."""
    return Support(dict.fromkeys(("inference", "forward_backward", "training"), FLOATS))


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Keras, data: Inputs) -> Workload:
    """Build a step: the results of the model; its loss and gradients; or a step of AdamW on its loss."""
    models.require("jax")
    return workload(_KerasCalls(framework, case, problem, data), data)


@dataclass(frozen=True)
class Weighted:
    """A model with its trained weights and its other variables, such as the running statistics of normalisation."""

    model: keras.Model
    trained: list[Array]
    others: list[Array]
    precision: str


class _KerasCalls(JaxCalls):
    problem: Keras

    def made(self, function: str, precision: str) -> Weighted:
        """Return the model in the type of the precision, with weights from the seed of the case."""
        model = models.build(self.problem, precision, self.case.seed)
        if self.case.measuring.profiling != "no":
            models.mark(model, self.problem.depth, jax.named_scope)
        trained, others = (
            jax.device_put([variable.value for variable in several], self.framework.device)
            for several in (model.trainable_variables, model.non_trainable_variables)
        )
        return Weighted(model, trained, others, precision)

    def has_weights(self, function: Any) -> bool:
        """Return True."""
        return True

    def step(self, function: Weighted, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step in the mode of the case, which is always jitted; it keeps its state and reuses its memory."""
        jitted, read, state = self._jitted(function)

        def step(arrays: Arguments) -> Any:
            nonlocal state
            state, result = jitted(read, state, arrays)
            return result

        return step

    def _jitted(self, function: Weighted) -> tuple[Any, Any, Any]:
        """Return the jitted step, what it only reads, and its first state.

        Models of one precision differ in their weights alone, so that their steps are compiled once.
        """
        trained, others = function.trained, function.others
        read: Any
        state: Any
        if self.case.mode == "inference":
            update, read, state = self._inference, (trained, others), ()
        elif self.case.mode == "forward_backward":
            update, read, state = self._forward_backward, trained, others
        else:
            moments = jax.jit(self.optimizer.init)(trained)
            update, read, state = self._training, (), (trained, others, moments)
        if function.precision not in self.compiled:
            self.compiled[function.precision] = jax.jit(partial(update, function.model), donate_argnums=1)
        return self.compiled[function.precision], read, state

    @cached_property
    def compiled(self) -> dict[str, Any]:
        """Jitted steps by precision."""
        return {}

    @cached_property
    def optimizer(self) -> optax.GradientTransformation:
        """AdamW, which only training needs."""
        return import_module("benchmarker_problems.steps.jax").adamw(ADAMW)

    def _inference(self, model: keras.Model, read: Any, state: Any, arrays: Arguments) -> tuple[Any, Any]:
        with jax.named_scope(self.problem.measured):
            result, _ = model.stateless_call(*read, arrays["images"], training=False)
        return state, {"0": result}

    def _loss(self, model: keras.Model, trained: Any, others: Any, arrays: Arguments) -> tuple[Array, Any]:
        """Return the mean cross-entropy with the labels, and the other variables after this step."""
        with jax.named_scope(self.problem.measured):
            logits, others = model.stateless_call(trained, others, arrays["images"], training=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, arrays["labels"]).mean(), others

    def _forward_backward(self, model: keras.Model, read: Any, state: Any, arrays: Arguments) -> tuple[Any, Any]:
        loss, pullback, others = jax.vjp(lambda read: self._loss(model, read, state, arrays), read, has_aux=True)
        cotangent = np.random.default_rng(self.case.seed).standard_normal()  # as in PyTorch
        (gradients,) = pullback(jnp.asarray(cotangent, loss.dtype))
        return others, {"loss": loss, "gradients": gradients}

    def _training(self, model: keras.Model, read: Any, state: Any, arrays: Arguments) -> tuple[Any, Any]:
        trained, others, moments = state
        of_weights = jax.value_and_grad(partial(self._loss, model), has_aux=True)
        (loss, others), gradients = of_weights(trained, others, arrays)
        with jax.named_scope("optimizer"):
            updates, moments = self.optimizer.update(gradients, moments, trained)
            trained = optax.apply_updates(trained, updates)
        return (trained, others, moments), loss

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results by name, and all gradients together: those of some weights are nothing but rounding."""
        if self.case.mode != "forward_backward":
            return results(result, Array)
        gradients = results(result["gradients"], Array).values()
        together = np.concatenate([value.ravel() for value in gradients])
        return {**results(result["loss"], Array), "gradients": together}

    def flops(self, function: Weighted, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Count all arithmetic of the step as XLA is given it, before it is compiled."""
        jitted, read, state = self._jitted(function)
        analysis = jitted.lower(read, state, arguments).cost_analysis()
        counted = int((analysis or {}).get("flops", 0))
        return (counted, "xla") if counted > 0 else None
