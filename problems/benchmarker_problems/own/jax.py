"""Functions of the user, and modules of flax.nnx, in JAX."""

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import FLOATS, PRECISIONS, Case, CountedBy, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.own import Own
from benchmarker_problems.own.arguments import Inputs, Place, placed, results
from benchmarker_problems.own.workload import Calls, workload

Arguments = dict[str, Array]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type; a file may not support all of them."""
    return Support(dict.fromkeys(("inference", "forward_backward"), FLOATS))


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Own, data: Inputs) -> Workload:
    """Build a step: a jitted call of the function; with backward also its gradients."""
    return workload(JaxCalls(framework, case, problem, data), data)


class JaxCalls(Calls[Arguments]):
    """How JAX calls functions, and modules of flax.nnx."""

    framework: JaxFramework

    def made(self, function: str, precision: str) -> Any:
        """Return the function, or the module of flax.nnx, in the type of the precision."""
        assert isinstance(self.problem, Own)
        made = self.problem.made(function, rngs=lambda: _nnx().Rngs(self.case.seed))
        if self.has_weights(made):
            dtype = DTYPES[PRECISIONS[precision].parameter]
            state = _nnx().state(made)
            _nnx().update(made, jax.tree.map(lambda leaf: leaf.astype(dtype) if _is_real(leaf) else leaf, state))
        return made

    def put(self, batch: Mapping[str, np.ndarray], precision: str) -> Arguments:
        """Return the arrays among the arguments by their places."""
        arrays: Arguments = {}

        def add(place: Place) -> None:
            value = batch[place.name]
            arrays[place.name] = self.framework.put(value, _dtype(value, place, precision))

        placed(self.template, add)
        return arrays

    def step(self, function: Any, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step in the mode of the case, which is always jitted."""
        pure, weights = self._pure(function)
        return partial(jax.jit(pure), weights)

    def _pure(self, function: Any) -> tuple[Callable[[Any, Arguments], Any], Any]:
        """Return the step as a function of weights and arrays alone, and the weights.

        Whatever else the function takes is a constant. What a module changes in itself is dropped, so all steps are the
        same.
        """
        weights: Any = {}
        if self.has_weights(function):
            nnx = _nnx()
            graph, weights, others = nnx.split(function, nnx.Param, ...)

        def forward(weights: Any, arrays: Arguments) -> Any:
            with jax.named_scope(self.problem.measured):
                args, kwargs = placed(self.template, lambda place: arrays[place.name])
                if not self.has_weights(function):
                    return function(*args, **kwargs)
                own = jax.tree.map(lambda leaf: leaf, others)  # variables that this trace may change
                return nnx.merge(graph, weights, own)(*args, **kwargs)

        def forward_backward(weights: Any, arrays: Arguments) -> dict[str, Any]:
            inputs = {name: value for name, value in arrays.items() if jnp.issubdtype(value.dtype, jnp.inexact)}
            constants = {name: value for name, value in arrays.items() if name not in inputs}
            result, pullback = jax.vjp(
                lambda weights, inputs: forward(weights, {**constants, **inputs}), weights, inputs
            )
            leaves, tree = jax.tree.flatten(result)
            rng = np.random.default_rng(self.case.seed)
            cotangents = [jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype) for leaf in leaves]
            of_weights, of_inputs = pullback(jax.tree.unflatten(tree, cotangents))
            named = nnx.to_pure_dict(of_weights) if self.has_weights(function) else {}
            return {"result": result, "gradients": {**of_inputs, **named}}

        return (forward if self.case.mode == "inference" else forward_backward), weights

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results, and the gradients as `d_` and their names."""
        if self.case.mode == "inference":
            return results(result, Array)
        gradients = {f"d_{name}": value for name, value in results(result["gradients"], Array).items()}
        return {**results(result["result"], Array), **gradients}

    def has_weights(self, function: Any) -> bool:
        """Whether it is a module of flax.nnx."""
        return "flax.nnx" in sys.modules and isinstance(function, _nnx().Module)

    def contents(self, arguments: Arguments) -> None:
        """Return None: JAX's arrays are immutable."""

    def overwrite(self, arguments: Arguments, batch: Mapping[str, np.ndarray]) -> bool:
        """Return False: JAX's arrays are immutable."""
        return False

    def flops(self, function: Any, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Count all arithmetic of the compiled step."""
        pure, weights = self._pure(function)
        analysis = jax.jit(pure).lower(weights, arguments).compile().cost_analysis()
        counted = int((analysis or {}).get("flops", 0))
        return (counted, "xla") if counted > 0 else None


def _nnx() -> Any:
    """Return flax.nnx, which only a file that has modules needs."""
    return importlib.import_module("flax.nnx")


def _is_real(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _dtype(value: np.ndarray, place: Place, precision: str) -> Any:
    """Return the type of an array on the device; None for that which it has on the host."""
    if value.dtype.kind == "c":
        return jnp.complex128 if precision == "fp64" else jnp.complex64
    if value.dtype.kind != "f":
        return None
    is_own = place.dtype is not None and precision != "fp64"
    return jnp.dtype(place.dtype) if is_own else DTYPES[PRECISIONS[precision].parameter]
