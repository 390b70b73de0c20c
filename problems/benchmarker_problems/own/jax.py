"""Functions of the user, and modules of flax.nnx, in JAX."""

from collections.abc import Callable, Mapping
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
    return workload(_JaxCalls(framework, case, problem, data), data)


class _JaxCalls(Calls[Arguments]):
    framework: JaxFramework

    def made(self, function: str, precision: str) -> Any:
        """Return the function of arrays alone, jitted; what else it takes is part of it."""
        return self.problem.made(function)

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
        return jax.jit(self._of_arrays(function))

    def _of_arrays(self, function: Any) -> Callable[[Arguments], Any]:
        """Return the step as a function of the arrays alone: whatever else the function takes is a constant."""

        def forward(arrays: Arguments) -> Any:
            with jax.named_scope(self.problem.function):
                args, kwargs = placed(self.template, lambda place: arrays[place.name])
                return function(*args, **kwargs)

        def forward_backward(arrays: Arguments) -> dict[str, Any]:
            inputs = {name: value for name, value in arrays.items() if jnp.issubdtype(value.dtype, jnp.inexact)}
            others = {name: value for name, value in arrays.items() if name not in inputs}
            result, pullback = jax.vjp(lambda inputs: forward({**others, **inputs}), inputs)
            leaves, tree = jax.tree.flatten(result)
            rng = np.random.default_rng(self.case.seed)
            cotangents = [jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype) for leaf in leaves]
            (gradients,) = pullback(jax.tree.unflatten(tree, cotangents))
            return {"result": result, "gradients": gradients}

        return forward if self.case.mode == "inference" else forward_backward

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results, and the gradients as `d_` and their names."""
        if self.case.mode == "inference":
            return results(result, Array)
        gradients = {f"d_{name}": value for name, value in results(result["gradients"], Array).items()}
        return {**results(result["result"], Array), **gradients}

    def has_weights(self, function: Any) -> bool:
        """Whether it has weights of its own, which it gets from the case's seed."""
        return False

    def contents(self, arguments: Arguments) -> None:
        """Return None: JAX's arrays are immutable."""

    def overwrite(self, arguments: Arguments, batch: Mapping[str, np.ndarray]) -> bool:
        """Return False: JAX's arrays are immutable."""
        return False

    def flops(self, function: Any, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Count all arithmetic of the compiled step."""
        analysis = jax.jit(self._of_arrays(function)).lower(arguments).compile().cost_analysis()
        counted = int((analysis or {}).get("flops", 0))
        return (counted, "xla") if counted > 0 else None


def _dtype(value: np.ndarray, place: Place, precision: str) -> Any:
    """Return the type of an array on the device; None for that which it has on the host."""
    if value.dtype.kind == "c":
        return jnp.complex128 if precision == "fp64" else jnp.complex64
    if value.dtype.kind != "f":
        return None
    is_own = place.dtype is not None and precision != "fp64"
    return jnp.dtype(place.dtype) if is_own else DTYPES[PRECISIONS[precision].parameter]
