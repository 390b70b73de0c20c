"""Convolution in one, two or three dimensions, as frameworks define it: the kernel is not mirrored.

Shapes: B batch, X axes of the image (one to three), Y those of the output, K those of the kernel, I input channels
(of one group in a kernel), O output channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import FLOATS, PRECISIONS, Arrays, Cost, Data, Mode, Problem, hookimpl
from benchmarker_problems.conv.reference import convolve, out_size
from benchmarker_problems.layers import DERIVED, fill, require_multiples
from benchmarker_problems.layers.data import normal

Layout = Literal["channels_first", "channels_last"]
LAYOUT_HELP = "axis of the channels in memory: NCHW or NHWC, with the kernels to match"

INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("x", "w"), "forward_backward": ("x", "w", "d_out")}
"""Inputs of a step, by mode."""
OUTPUTS = ("out", "d_x", "d_w")
"""Outputs of a step, in order; without the backward pass, only the first."""
PRECISIONS_DONE = dict.fromkeys(INPUTS, FLOATS)

IMAGE_SIZES = {1: 3136, 2: 56, 3: 14}
"""Sizes of an image by its dimensions if none is given; all have about 3000 positions."""


@dataclass(frozen=True)
class Conv(Problem):
    """One convolution without bias; `forward_backward` adds the gradients of the image and of the kernel.

    The padding is the same on both sides, which every framework can do.
    """

    summary = "convolution in 1, 2 or 3 dimensions, with stride, padding, dilation and groups"
    accelerator = {"batch_size": 128, "in_channels": 256, "out_channels": 256}
    cache = "rotate"
    reads = INPUTS
    cost_formula = (
        "flops = 2·B·out_channels·in_channels/groups·kernel_size^dims·out_size^dims, including products with padding,\n"
        "        three times that with backward\n"
        "bytes = image, kernel and output once, with backward also their gradients"
    )

    dims: Annotated[int, Meta(ge=1, le=3, description="dimensions of an image")] = 2
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 8
    in_channels: Annotated[int, Meta(ge=1, description="channels of an image, a multiple of groups")] = 64
    out_channels: Annotated[int, Meta(ge=1, description="channels of the output, a multiple of groups")] = 64
    image_size: Annotated[int, Meta(ge=1, description="size of an image; if omitted, 3136, 56 or 14 by dims")] = DERIVED
    kernel_size: Annotated[int, Meta(ge=1, description="size of the kernel")] = 3
    stride: Annotated[int, Meta(ge=1, description="distance of the kernel's positions")] = 1
    padding: Annotated[
        int, Meta(ge=0, description="zeros on each side; if omitted, dilation·(kernel_size - 1)/2 rounded down")
    ] = DERIVED
    dilation: Annotated[int, Meta(ge=1, description="distance of the elements that a kernel reads")] = 1
    groups: Annotated[int, Meta(ge=1, description="independent groups of channels; in_channels for depthwise")] = 1
    layout: Annotated[Layout, Meta(description=LAYOUT_HELP)] = "channels_last"

    def __post_init__(self) -> None:
        fill(self, {"image_size": IMAGE_SIZES[self.dims], "padding": self.half_span})
        require_multiples(self, in_channels="groups", out_channels="groups")
        if self.out_size < 1:
            raise ValueError(
                f"the kernel reads across {self.span} elements, but the padded image has "
                f"{self.image_size + 2 * self.padding}; increase image_size or padding"
            )

    @property
    def span(self) -> int:
        """Elements from the first to the last that the kernel reads along an axis."""
        return self.dilation * (self.kernel_size - 1) + 1

    @property
    def half_span(self) -> int:
        """The padding with which, for odd kernels and a stride of 1, the output has the size of the image."""
        return (self.span - 1) // 2

    @property
    def out_size(self) -> int:
        """Size of the output."""
        return out_size(self.image_size, self.kernel_size, self.stride, self.padding, self.dilation)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the image, the kernel and the output, with the channels last."""
        p = self
        return {
            "x": (p.batch_size, *p.dims * (p.image_size,), p.in_channels),
            "w": (*p.dims * (p.kernel_size,), p.in_channels // p.groups, p.out_channels),
            "out": (p.batch_size, *p.dims * (p.out_size,), p.out_channels),
        }

    def title(self, mode: Mode) -> str:
        """Return kernel, channels, batch and image: `conv2d 3×3 64→64, B=8 56×56`; then what is not the default."""
        kernel, image = ("×".join(self.dims * (str(size),)) for size in (self.kernel_size, self.image_size))
        rare = {
            f" s={self.stride}": self.stride > 1,
            f" p={self.padding}": self.padding != self.half_span,
            f" d={self.dilation}": self.dilation > 1,
            f" g={self.groups}": self.groups > 1,
            f" {self.layout}": self.layout != Conv.layout,
            " fwd+bwd": mode == "forward_backward",
        }
        what = f"conv{self.dims}d {kernel} {self.in_channels}→{self.out_channels}, B={self.batch_size} {image}"
        return what + "".join(text for text, shown in rare.items() if shown)

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the convolution, the only part."""
        return {"conv": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the products; the gradients of the image and of the kernel take as many each."""
        sizes = {name: int(np.prod(shape)) for name, shape in self.shapes.items()}
        flops = 2 * sizes["out"] * sizes["w"] // self.out_channels
        moved = sum(sizes.values()) * PRECISIONS[precision].parameter_bytes
        if mode == "inference":
            return Cost(flops, moved, self.batch_size)
        return Cost(3 * flops, 2 * moved, self.batch_size)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw image, kernel and the gradient of the output from a normal distribution, with the channels last."""
        shapes = {"x": self.shapes["x"], "w": self.shapes["w"], "d_out": self.shapes["out"]}
        return Data({}, normal(shapes, precision, rng, batches))

    def small(self) -> Self:
        """Return the same kind of convolution (depthwise, grouped or neither), of few elements and channels."""
        depthwise = 1 < self.groups == self.in_channels
        groups = 4 if depthwise else min(self.groups, 2)
        kernel_size, dilation = min(self.kernel_size, 5), min(self.dilation, 2)
        return replace(
            self,
            batch_size=2,
            in_channels=4 if depthwise else 6,
            out_channels=8,
            image_size=min(self.image_size, 11),
            kernel_size=kernel_size,
            stride=min(self.stride, 3),
            padding=min(self.padding, dilation * (kernel_size - 1)),
            dilation=dilation,
            groups=groups,
        )

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the output, and in `forward_backward` the gradients of image and kernel, with the channels last."""
        out_BYO, pullback = convolve(batch["x"], batch["w"], self.stride, self.padding, self.dilation, self.groups)
        gradients = pullback(batch["d_out"]) if mode == "forward_backward" else ()
        return dict(zip(OUTPUTS, (out_BYO, *gradients), strict=False))


@hookimpl
def define_problem() -> type[Problem]:
    """Return the convolution problem."""
    return Conv


def channels_first(name: str, value: np.ndarray) -> np.ndarray:
    """Return an image or output [B, *X, C] as [B, C, *X], or a kernel [*K, I, O] as [O, I, *K]; `name` says which."""
    return np.moveaxis(value, (-1, -2), (0, 1)) if name in ("w", "d_w") else np.moveaxis(value, -1, 1)


def channels_last(name: str, value: np.ndarray) -> np.ndarray:
    """Undo `channels_first`."""
    return np.moveaxis(value, (0, 1), (-1, -2)) if name in ("w", "d_w") else np.moveaxis(value, 1, -1)
