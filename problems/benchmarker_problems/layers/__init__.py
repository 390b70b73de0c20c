"""What models are made of, independently of any framework: here, the shapes of weights and derived parameters.

`layer` has the layers of models, `model` stacks them, and `problem` has what follows from a stack; `transformer` has
what follows from one of transformer blocks. `data` draws weights, tokens and images, and `work` counts FLOPs and bytes.
The other modules here compute the layers in each framework, and in NumPy for the reference. A model is a folder of its
own that calls them from top to bottom.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

Impl = Literal["einsum", "matmul", "fused"]
ImplOption = Annotated[
    Impl,
    Meta(description="einsum on [B,T,H,D], matmul on transposed [B,H,T,D], or the framework's own fused attention"),
]

Shapes = dict[str, tuple[int, ...]]

DERIVED: Any = None
"""Default of a parameter that `fill` derives from others."""


def fill(problem: Any, values: Mapping[str, Any]) -> None:
    """Give the parameters of a frozen dataclass that are still `DERIVED` their values."""
    for name, value in values.items():
        if getattr(problem, name) is DERIVED:
            object.__setattr__(problem, name, value)


def require_multiples(problem: Any, **of: str) -> None:
    """Raise `ValueError` unless each parameter is a multiple of the other one, as in `d_model="n_head"`."""
    for name, other in of.items():
        value, divisor = getattr(problem, name), getattr(problem, other)
        if value % divisor:
            raise ValueError(f"{name}={value} is not a multiple of {other}={divisor}")


def linear_shapes(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    """Return the shapes of a product with weights; a `kernel` is [inputs, outputs]."""
    shapes: Shapes = {f"{name}.kernel": (inputs, outputs)}
    if bias:
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def norm_shapes(name: str, width: int, *, bias: bool = True) -> Shapes:
    """Return the shapes of a normalisation: LayerNorm has a gain and a bias, RMSNorm only a gain."""
    shapes: Shapes = {f"{name}.scale": (width,)}
    if bias:
        shapes[f"{name}.bias"] = (width,)
    return shapes


def size_of(shapes: Shapes) -> int:
    """Return the number of parameters."""
    return sum(map(math.prod, shapes.values()))
