"""Work of layers by formula: the FLOPs of their products, and the bytes that they move."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarker import PRECISIONS, Work
from benchmarker_problems.quantization import WeightType, kernel_bytes


@dataclass(frozen=True)
class RowWork:
    """Work of layers that act on every one of `rows` (such as tokens) alike.

    The backward pass has two products for each product of the forward pass. It reads the inputs and the gradients of
    the outputs, and writes the gradients of the inputs. Kernels of linear layers are stored as `weight_type`.
    """

    rows: int
    precision: str
    backward: bool
    weight_type: WeightType = "full"

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight, other than in kernels of linear layers."""
        return PRECISIONS[self.precision].parameter_bytes

    @property
    def item_bytes(self) -> int:
        """Bytes of one element between the layers."""
        return PRECISIONS[self.precision].compute_bytes

    def kernel_bytes(self, *shape: int) -> int:
        """Return the bytes of a kernel, [experts, inputs, outputs] or without experts, as it is stored."""
        return kernel_bytes(shape, self.weight_type, self.precision)

    def part(
        self, flops: int, *, read: int, written: int, weights: int = 0, kernel_bytes: int = 0, cached: int = 0
    ) -> Work:
        """Return the work of a part that reads and writes so many elements and weights in the forward pass.

        Kernels are beside the weights. Of the elements, so many are `cached`: kept from step to step, which is only
        without a backward pass.
        """
        weight_bytes = weights * self.weight_bytes + kernel_bytes
        read, written = read * self.item_bytes + weight_bytes, written * self.item_bytes
        if self.backward:
            return Work(3 * flops, 3 * read + 2 * written, 3 * weight_bytes)
        return Work(flops, read + written, weight_bytes, cached * self.item_bytes)

    def first_linear(self, inputs: int, outputs: int) -> Work:
        """Return the work of a product of a batch's data with weights: the data needs no gradient."""
        flops, weight_bytes = 2 * self.rows * inputs * outputs, self.kernel_bytes(inputs, outputs)
        moved = self.rows * (inputs + outputs) * self.item_bytes + weight_bytes
        return Work(flops, moved, weight_bytes) * (1 + self.backward)

    def linear(self, inputs: int, outputs: int, *, residual: bool = False) -> Work:
        """Return the work of a product with weights, and of the addition to a residual that follows."""
        read = self.rows * (inputs + outputs * residual)
        return self.part(
            2 * self.rows * inputs * outputs,
            read=read,
            written=self.rows * outputs,
            kernel_bytes=self.kernel_bytes(inputs, outputs),
        )

    def norm(self, width: int, *, bias: bool = True) -> Work:
        """Return the work of LayerNorm, or without a bias of RMSNorm."""
        return self.pointwise(width, width, weights=width * (1 + bias))

    def pointwise(self, read: int, written: int, *, weights: int = 0) -> Work:
        """Return the work of an op that reads and writes so many elements of each row."""
        return self.part(0, read=self.rows * read, written=self.rows * written, weights=weights)


def update(moved: int) -> Work:
    """Return the work of an optimizer that moves so many bytes: weights, their gradients, and its own state."""
    return Work(0, moved, moved)


def times(count: int, parts: Mapping[str, Work]) -> dict[str, Work]:
    """Return the work of parts that run `count` times."""
    return {name: work * count for name, work in parts.items()}


def added(several: Iterable[Mapping[str, Work]]) -> dict[str, Work]:
    """Return the sum of the work of each part."""
    total: dict[str, Work] = {}
    for parts in several:
        for name, work in parts.items():
            total[name] = total.get(name, Work(0, 0)) + work
    return total
