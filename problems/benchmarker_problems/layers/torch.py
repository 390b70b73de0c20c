"""Layers that PyTorch does not have.

Shapes: B batch, T sequence, H heads, D head dimension, V vocabulary; of images, H height, W width, C channels, N
patches, P numbers of a patch.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarker_plugins.frameworks.torch import scope


def rope(x_BTHD: Tensor, cos_T1d: Tensor, sin_T1d: Tensor) -> Tensor:
    """Rotate the pairs (i, i + D/2) of each head by the angles of the position."""
    first, second = x_BTHD.chunk(2, dim=-1)
    return torch.cat(
        [
            torch.addcmul(first * cos_T1d, second, sin_T1d, value=-1),
            torch.addcmul(second * cos_T1d, first, sin_T1d),
        ],
        dim=-1,
    )


def patches(images_BHWC: Tensor, size: int) -> Tensor:
    """Return the patches from left to right and from top to bottom, [B, N, P]; their pixels stay in this order."""
    batch_size, height, width, channels = images_BHWC.shape
    tiles = images_BHWC.view(batch_size, height // size, size, width // size, size, channels).transpose(2, 3)
    return tiles.reshape(batch_size, -1, size * size * channels)


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate)·up of the two halves of the last axis."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def cross_entropy(logits_V: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, in fp32 or fp64."""
    with scope("loss"):
        sum_dtype = torch.promote_types(logits_V.dtype, torch.float32)
        return F.cross_entropy(logits_V.flatten(0, -2).to(sum_dtype), targets.flatten())
