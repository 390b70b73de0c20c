"""ResNet v1.5 for images: He et al., 2015, with the stride of a bottleneck in its 3×3 convolution as in PyTorch.

Shapes: B batch, X positions of an image (two axes, height and width), C channels, V classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Piece, Precision, Problem, Published, hookimpl
from benchmarker_problems.conv import LAYOUT_HELP, Layout
from benchmarker_problems.layers import size_of
from benchmarker_problems.layers.data import labelled_images
from benchmarker_problems.layers.layer import Linear, Moved
from benchmarker_problems.layers.model import Model, Stage
from benchmarker_problems.layers.problem import Layered
from benchmarker_problems.resnet.reference import RELU, Block, Conv, MaxPool, MeanPool
from benchmarker_problems.steps import DONE, Sgd, is_statistic

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


def block(name: str, stride: int, inputs: int, inner: int, outputs: int, size: int) -> Block:
    """Return a bottleneck, or if it would not widen the outputs, a block of two 3×3 convolutions."""
    small = ceil(size / stride)
    if inner == outputs:
        plan = [(3, stride, inputs, inner, size), (3, 1, inner, outputs, small)]
    else:
        plan = [(1, 1, inputs, inner, size), (3, stride, inner, inner, size), (1, 1, inner, outputs, small)]
    convs = tuple(
        Conv(f"{name}.", f"conv{number}", f"norm{number}", *shape, residual=number == len(plan))
        for number, shape in enumerate(plan, 1)
    )
    shortcut = Conv(f"{name}.", "shortcut_conv", "shortcut_norm", 1, stride, inputs, outputs, size)
    return Block(name, convs, shortcut if stride > 1 or inputs != outputs else None)


@dataclass(frozen=True)
class Resnet(Layered):
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

    input = "images"

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
        return Conv("", "stem_conv", "stem_norm", 7, 2, COLOURS, self.width, self.image_size, of_data=True)

    @property
    def stem_pool(self) -> MaxPool:
        """The maximum of the stem."""
        return MaxPool("stem_pool", self.stem.out_size, self.width)

    @property
    def residual(self) -> tuple[Block, ...]:
        """The residual blocks."""
        expansion = 1 if self.size in ("18", "34") else 4
        inputs, size = self.width, self.stem_pool.out_size
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
        return (self.stem, *(conv for block in self.residual for conv in block.every_conv))

    @property
    def last(self) -> Conv:
        """The last convolution, whose outputs are averaged."""
        return self.residual[-1].convs[-1]

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

    def model(self) -> Model:
        """Return the layers, a stage for each block."""
        features, head_size = self.last.outputs, self.last.out_size
        stages = (
            (self.stem, RELU, self.stem_pool),
            *((block,) for block in self.residual),
            (MeanPool("pool", head_size, features), Linear("fc", features, self.classes)),
        )
        loss = Stage(self.batch_size, (Moved("loss", self.classes),))
        return Model(tuple(Stage(self.batch_size, layers) for layers in stages), loss)

    def pieces(self) -> Sequence[Piece]:
        """Return the convolutions but for the first, in the layout of the model, and the head."""
        layout = {"conv": {"layout": self.layout}}
        return [
            replace(piece, options={**piece.options, **layout.get(piece.problem, {})}) for piece in super().pieces()
        ]

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of images, of logits or targets, and of running statistics, which move as weights do."""
        statistics = size_of(self.weight_shapes()) - self.parameter_count()
        images = self.batch_size * self.image_size**2 * COLOURS
        results = self.batch_size * (self.classes * types.compute_bytes if mode == "inference" else 4)
        return (images + self.copies(mode) * statistics) * types.parameter_bytes + results

    def optimizer(self) -> Sgd:
        """Return the settings of the optimizer."""
        return SETTINGS

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights, and images in which each class has its own pattern of squares under noise.

        Gains at the ends of branches are around 1/4: small ones keep deep networks stable (Goyal et al., 2017, use 0).
        """
        dtype = np.float64 if precision == "fp64" else np.float32
        weights = {name: _draw(name, shape, rng).astype(dtype) for name, shape in self.weight_shapes().items()}
        for block in self.residual:
            name = f"{block.convs[-1].norm_name}.scale"
            weights[name] = np.divide(weights[name], 4, dtype=dtype)
        drawn = labelled_images(
            self.batch_size, self.image_size, self.classes, rng, batches, squares=PATTERN_SIZE, noise=NOISE, scale=1
        )
        return Data(weights, tuple({**batch, "images": batch["images"].astype(dtype)} for batch in drawn))

    def small(self) -> Self:
        """Return at most two stages of two blocks; with and without a shortcut, both strides, few channels."""
        return replace(
            self, stages=min(self.stages, 2), stage_blocks=2, width=8, image_size=32, classes=10, batch_size=8
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradients as one vector; or the loss before each step.

        With backward, there are no running statistics, so that layers normalise over the batch.
        """
        used = {name: weight for name, weight in data.weights.items() if mode == "inference" or not is_statistic(name)}
        return map(as_one_gradient, super().reference(replace(data, weights=used), mode))


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
