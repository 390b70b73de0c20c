"""ResNet v1.5 for images: He et al., 2015, with the stride of a bottleneck in its 3×3 convolution as in PyTorch.

Shapes: B batch, X positions of an image (two axes, height and width), C channels, V classes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems.conv import LAYOUT_HELP, Layout
from benchmarker_problems.layers import Shapes, linear_shapes, norm_shapes, size_of
from benchmarker_problems.layers.reference import cross_entropy
from benchmarker_problems.layers.work import RowWork, update
from benchmarker_problems.resnet.reference import forward
from benchmarker_problems.steps import DONE, Sgd, is_statistic
from benchmarker_problems.steps.reference import steps

Size = Literal["18", "34", "50", "101", "152"]
SETTINGS = Sgd(learning_rate=0.025)
PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {
    **DONE,
    "training": tuple(name for name in DONE["training"] if name != "bf16"),
}
"""Precisions by mode. In pure bf16, rounding swallows most updates, and the loss does not fall."""
BLOCKS: Mapping[Size, tuple[int, ...]] = {
    "18": (2, 2, 2, 2),
    "34": (3, 4, 6, 3),
    "50": (3, 4, 6, 3),
    "101": (3, 4, 23, 3),
    "152": (3, 8, 36, 3),
}
"""Blocks of each stage (He et al., 2015, table 1); those of 50 layers and more are bottlenecks."""
PUBLISHED: Mapping[Size, tuple[int, float]] = {
    "18": (11_689_512, 1.814e9),
    "34": (21_797_672, 3.664e9),
    "50": (25_557_032, 4.089e9),
    "101": (44_549_160, 7.801e9),
    "152": (60_192_808, 11.514e9),
}
"""Parameters, and multiply-adds of one image of 224×224."""

COLOURS = 3
IMAGE_SIZE = 224
CLASSES = 1000
WIDTH = 64
PATTERN_SIZE = 7
"""Squares along an image that have one colour each in the pattern of a class."""
NOISE = 0.5
"""Standard deviation of the noise on an image; that of its pattern is 1."""


@dataclass(frozen=True)
class Conv:
    """One convolution without bias, and the normalisation that follows; `scope` and `norm` are their scopes.

    `prefix` and the scope are the name of their weights.
    """

    prefix: str
    scope: str
    norm: str
    kernel_size: int
    stride: int
    inputs: int
    outputs: int
    in_size: int

    @property
    def name(self) -> str:
        """Name of the convolution's weights."""
        return self.prefix + self.scope

    @property
    def norm_name(self) -> str:
        """Name of the normalisation's weights."""
        return self.prefix + self.norm

    @property
    def out_size(self) -> int:
        """Height and width of the output: the padding is half the kernel."""
        return ceil(self.in_size / self.stride)

    @property
    def weights(self) -> int:
        """Number of weights of the convolution."""
        return self.kernel_size**2 * self.inputs * self.outputs


@dataclass(frozen=True)
class Block:
    """A residual block: `convs` of its branch, with the stride in its 3×3 convolution, and that of the shortcut."""

    name: str
    convs: tuple[Conv, ...]
    shortcut: Conv | None


def block(name: str, stride: int, inputs: int, inner: int, outputs: int, size: int) -> Block:
    """Return a bottleneck, or if it would not widen the outputs, a block of two 3×3 convolutions."""
    small = ceil(size / stride)
    if inner == outputs:
        plan = [(3, stride, inputs, inner, size), (3, 1, inner, outputs, small)]
    else:
        plan = [(1, 1, inputs, inner, size), (3, stride, inner, inner, size), (1, 1, inner, outputs, small)]
    convs = tuple(Conv(f"{name}.", f"conv{number}", f"norm{number}", *shape) for number, shape in enumerate(plan, 1))
    shortcut = Conv(f"{name}.", "shortcut_conv", "shortcut_norm", 1, stride, inputs, outputs, size)
    return Block(name, convs, shortcut if stride > 1 or inputs != outputs else None)


@dataclass(frozen=True)
class Resnet(Problem):
    """ResNet: `inference` with running statistics; with backward, normalisation over the batch.

    `inference` returns the logits. `training` also updates the running statistics; flax stores the biased variance and
    PyTorch the unbiased one, which no output depends on. The loss is the mean cross-entropy. Momentum and decay are
    those of He et al., 2015; the learning rate is a quarter of theirs, as batches are smaller.

    Gradients are compared as one vector. Normalisation over a batch makes gradients of gains and biases small
    differences of large sums: in 48 draws in fp32, single ones were up to 126 unit roundoffs off, the vector 8 to 17.
    """

    summary = "ResNet v1.5 image classifier: logits, loss and gradients, or a step of SGD with momentum"
    accelerator = {"batch_size": 128}
    optimizer_numbers = 1
    published = tuple(
        Published({"size": size, "batch_size": 1}, "torchvision's documentation", parameters, 2 * multiply_adds)
        for size, (parameters, multiply_adds) in PUBLISHED.items()
    )
    cost_formula = (
        "flops = 2·B·(sum over convolutions of kernel²·inputs·outputs·out_size², and features·classes);\n"
        "        with backward three times that, without the gradient of the images\n"
        "bytes = weights, images and logits once; 2·weights with backward; 5·weights with the momentum"
    )

    size: Annotated[Size, Meta(description="layers; from 50 on, blocks are bottlenecks")] = "50"
    stages: Annotated[int, Meta(ge=1, le=4, description="stages, each of half the size and twice the width")] = 4
    stage_blocks: Annotated[int, Meta(ge=0, description="blocks of each stage; 0 for those of the size")] = 0
    width: Annotated[int, Meta(ge=1, description="channels of the first stage")] = WIDTH
    image_size: Annotated[int, Meta(ge=1, description="height and width of an image")] = IMAGE_SIZE
    classes: Annotated[int, Meta(ge=2, description="classes of images")] = CLASSES
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 4
    layout: Annotated[Layout, Meta(description=LAYOUT_HELP)] = "channels_last"

    def __post_init__(self) -> None:
        if self.batch_size * self.last.out_size**2 < 2:
            raise ValueError(
                "normalisation over a batch takes two values of each channel, but the last stage has one: "
                "increase batch_size or image_size"
            )

    @property
    def stem(self) -> Conv:
        """The first convolution; a maximum over 3×3 with a stride of 2 follows."""
        return Conv("", "stem_conv", "stem_norm", 7, 2, COLOURS, self.width, self.image_size)

    @property
    def pooled_size(self) -> int:
        """Height and width after the maximum of the stem."""
        return ceil(self.stem.out_size / 2)

    @property
    def residual(self) -> tuple[Block, ...]:
        """The residual blocks."""
        expansion = 1 if self.size in ("18", "34") else 4
        inputs, size = self.width, self.pooled_size
        blocks = []
        for stage, published in enumerate(BLOCKS[self.size][: self.stages], 1):
            inner = self.width * 2 ** (stage - 1)
            outputs = inner * expansion
            for number in range(self.stage_blocks or published):
                stride = 2 if stage > 1 and number == 0 else 1
                blocks.append(block(f"layer{stage}.{number}", stride, inputs, inner, outputs, size))
                inputs, size = outputs, blocks[-1].convs[-1].out_size
        return tuple(blocks)

    @property
    def convs(self) -> tuple[Conv, ...]:
        """All convolutions, in order of use."""
        shortcuts = ((*each.convs, *([each.shortcut] if each.shortcut else [])) for each in self.residual)
        return (self.stem, *(conv for convs in shortcuts for conv in convs))

    @property
    def ends(self) -> tuple[Conv, ...]:
        """The convolutions at the ends of branches, which the shortcut is added to."""
        return tuple(each.convs[-1] for each in self.residual)

    @property
    def last(self) -> Conv:
        """The last convolution, whose outputs are averaged."""
        return self.ends[-1]

    def title(self, mode: Mode) -> str:
        """Return the size, the mode, and what is not the default: `ResNet-50 training, B=4 224×224`."""
        rare = {
            f" stages={self.stages}": self.stages != Resnet.stages,
            f" blocks={self.stage_blocks}": self.stage_blocks != Resnet.stage_blocks,
            f" width={self.width}": self.width != WIDTH,
            f" V={self.classes}": self.classes != CLASSES,
        }
        what = f"ResNet-{self.size}{''.join(text for text, shown in rare.items() if shown)}"
        layout = f" {self.layout}" * (self.layout != Resnet.layout)
        size = f"{self.image_size}×{self.image_size}"
        return f"{what} {mode.replace('forward_backward', 'fwd+bwd')}, B={self.batch_size} {size}{layout}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the convolutions and normalisations, and the other parts; ReLU and sums belong to the latter."""
        counts = {"stem_conv": 1, "stem_norm": 1, "stem_pool": 1}
        for conv in self.convs[1:]:
            for name in (conv.scope, conv.norm):
                counts[name] = counts.get(name, 0) + 1
        loss = () if mode == "inference" else ("loss",)
        optimizer = ("optimizer",) if mode == "training" else ()
        return {**counts, **dict.fromkeys(("pool", "fc", *loss, *optimizer), 1)}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the products; the backward pass has two for each, but needs no gradient of the images."""
        types = PRECISIONS[precision]
        flops = sum(work.flops for work in self.parts(mode, precision).values())
        weights = size_of(self.weight_shapes()) * types.parameter_bytes
        images = self.batch_size * self.image_size**2 * COLOURS * types.parameter_bytes
        labels, logits = 4 * self.batch_size, self.batch_size * self.classes * types.compute_bytes
        moved = {
            "inference": weights + images + logits,
            "forward_backward": 2 * weights + images + labels,
            "training": Sgd.WEIGHTS_MOVED * weights + images + labels,
        }
        return Cost(flops, moved[mode], samples=self.batch_size)

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope; those of the blocks count for all blocks."""
        backward = mode != "inference"
        found: dict[str, Work] = {}

        def add(name: str, work: Work) -> None:
            found[name] = found.get(name, Work(0, 0)) + work

        for conv in self.convs:
            positions = RowWork(self.batch_size * conv.out_size**2, precision, backward)
            read = self.batch_size * conv.in_size**2 * conv.inputs
            flops = 2 * positions.rows * conv.weights
            work = positions.part(flops, read=read, written=positions.rows * conv.outputs, weights=conv.weights)
            if conv == self.stem and backward:
                # Its backward pass has one product, and writes no gradient of the images.
                work = replace(work, flops=2 * flops, bytes=work.bytes - read * positions.item_bytes)
            add(conv.scope, work)
            summed = 1 + (conv in self.ends)
            add(conv.norm, positions.pointwise(summed * conv.outputs, conv.outputs, weights=2 * conv.outputs))
        images = RowWork(self.batch_size, precision, backward)
        add("stem_pool", images.pointwise(self.stem.out_size**2 * self.width, self.pooled_size**2 * self.width))
        features = self.last.outputs
        add("pool", images.pointwise(self.last.out_size**2 * features, features))
        add("fc", images.linear(features, self.classes))
        if backward:
            add("loss", images.pointwise(self.classes, 0))
        if mode == "training":
            add("optimizer", update(Sgd.WEIGHTS_MOVED * self.parameter_count() * images.weight_bytes))
        return found

    def parameter_count(self) -> int:
        """Return the number of weights; running statistics are not among them."""
        return size_of({name: shape for name, shape in self.weight_shapes().items() if not is_statistic(name)})

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights, and images in which each class has its own pattern of squares under noise.

        Gains at the ends of branches are around 1/4: small ones keep deep networks stable (Goyal et al., 2017, use 0).
        """
        dtype = np.float64 if precision == "fp64" else np.float32
        weights = {name: _draw(name, shape, rng).astype(dtype) for name, shape in self.weight_shapes().items()}
        for conv in self.ends:
            weights[f"{conv.norm_name}.scale"] = np.divide(weights[f"{conv.norm_name}.scale"], 4, dtype=dtype)
        pattern_VXC = rng.standard_normal((self.classes, PATTERN_SIZE, PATTERN_SIZE, COLOURS), dtype=np.float32)
        return Data(weights, tuple(self._batch(pattern_VXC, dtype, rng) for _ in range(batches)))

    def small(self) -> Self:
        """Return at most two stages of two blocks; with and without a shortcut, both strides, few channels."""
        return replace(
            self, stages=min(self.stages, 2), stage_blocks=2, width=8, image_size=32, classes=10, batch_size=8
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradients as one vector; or the loss before each step."""
        outputs = steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(
                weights, batch["images"].astype(np.float64), self, train=mode != "inference"
            ),
            lambda logits_BV, batch: cross_entropy(logits_BV, batch["labels"]),
            SETTINGS,
        )
        return map(as_one_gradient, outputs)

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight and running statistic by name; a `kernel` is [*size, inputs, outputs]."""
        shapes: Shapes = {}
        for conv in self.convs:
            shapes[f"{conv.name}.kernel"] = (conv.kernel_size, conv.kernel_size, conv.inputs, conv.outputs)
            shapes |= norm_shapes(conv.norm_name, conv.outputs)
            shapes |= {f"{conv.norm_name}.{statistic}": (conv.outputs,) for statistic in ("mean", "var")}
        return shapes | linear_shapes("fc", self.last.outputs, self.classes)

    def _batch(
        self, pattern_VXC: np.ndarray, dtype: type[np.floating], rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        size = self.image_size
        labels_B = rng.integers(self.classes, size=self.batch_size, dtype=np.int32)
        square = np.arange(size) * PATTERN_SIZE // size
        images_BXC = NOISE * rng.standard_normal((self.batch_size, size, size, COLOURS), dtype=np.float32)
        images_BXC += pattern_VXC[labels_B[:, None, None], square[:, None], square]
        return {"images": images_BXC.astype(dtype), "labels": labels_B}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the ResNet problem."""
    return Resnet


def as_one_gradient(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a step with all gradients, or their averages, as one vector in the order of their names."""
    gradients = [outputs[name].ravel() for name in sorted(outputs) if name.startswith(("d_", "m_"))]
    others = {name: value for name, value in outputs.items() if not name.startswith(("d_", "m_"))}
    return others | ({"gradients": np.concatenate(gradients)} if gradients else {})


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw a weight or statistic: kernels of convolutions with He et al.'s variance, 2/fan-out, none constant."""
    value = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith(".kernel"):
        variance = 2 / (np.prod(shape[:2]) * shape[3]) if len(shape) == 4 else 1 / shape[0]
        return value * np.float32(variance**0.5)
    return np.float32(0.05) * value + np.float32(name.endswith((".scale", ".var")))
