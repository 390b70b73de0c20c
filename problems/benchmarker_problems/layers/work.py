"""Work of layers by formula: the FLOPs of their products, and the bytes that they move."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarker import PRECISIONS, Work
from benchmarker_problems import attention
from benchmarker_problems.quantization import WeightType, kernel_bytes


@dataclass(frozen=True)
class Layers:
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
        flops, weight_bytes = 2 * self.rows * inputs * outputs, inputs * outputs * self.weight_bytes
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


def block_scopes(impl: attention.Impl) -> tuple[str, ...]:
    """Return the parts of a transformer block of GPT-2's kind: LayerNorm and biases, and an MLP with GELU."""
    mlp = ("ln_2", "mlp_fc", "mlp_gelu", "mlp_proj")
    return ("ln_1", "attn_qkv", *attention.scopes(impl), "attn_proj", *mlp)


def block_flops(tokens: int, seq_len: int, d_model: int, d_ff: int) -> int:
    """Return the FLOPs of such a block in the forward pass, on sequences of `seq_len` tokens."""
    return 2 * tokens * (4 * d_model**2 + 2 * d_model * d_ff + 2 * seq_len * d_model)


def block_recomputed_flops(
    tokens: int, seq_len: int, d_model: int, d_ff: int, *, scores: bool, recompute: bool, result_needed: bool = False
) -> int:
    """Return the FLOPs that a backward pass repeats: Q·Kᵀ if `scores`, as fused kernels do, and the block if asked.

    The last product is repeated only if a gradient needs its result, as that of a gate after it does.
    """
    flops = 2 * tokens * seq_len * d_model if scores else 0
    if not recompute:
        return flops
    unneeded = 0 if result_needed else 2 * tokens * d_ff * d_model
    return flops + block_flops(tokens, seq_len, d_model, d_ff) - unneeded


def block_parts(
    layers: Layers, seq_len: int, d_model: int, n_head: int, d_ff: int, impl: attention.Impl
) -> dict[str, Work]:
    """Return the work of the parts of such a block."""
    batch_size, head_dim = layers.rows // seq_len, d_model // n_head
    return {
        "ln_1": layers.norm(d_model),
        "attn_qkv": layers.linear(d_model, 3 * d_model),
        **attention.parts(batch_size, n_head, seq_len, head_dim, impl, layers.item_bytes, backward=layers.backward),
        "attn_proj": layers.linear(d_model, d_model, residual=True),
        "ln_2": layers.norm(d_model),
        "mlp_fc": layers.linear(d_model, d_ff),
        "mlp_gelu": layers.pointwise(d_ff, d_ff),
        "mlp_proj": layers.linear(d_ff, d_model, residual=True),
    }
