"""How several devices divide a training step, independently of any framework.

- `dp`, data parallel: the batch is divided, and every device has all weights.
- `fsdp`, fully sharded data parallel: the batch is divided, and so are weights, gradients and optimizer state. The
  weights of a block are gathered before it is computed, forward and backward; each device gets its share of the sum of
  the gradients.
- `tp`, tensor parallel (Shoeybi et al., 2019): every device has the whole batch and a share of the heads and of the
  MLP's width. The rest of the model, embedding and output head among it, is computed by every device.

The modules beside this one do it in each framework.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from benchmarker import Case, Collective, Data, Mode, Parallel, UserError

STRATEGIES: tuple[Parallel, ...] = ("dp", "fsdp", "tp")
"""All of them; the first is the default."""
COLUMNS = ("attn_qkv", "mlp_fc")
"""Linear layers of a block whose outputs `tp` divides."""
ROWS = ("attn_proj", "mlp_proj")
"""Linear layers of a block whose inputs `tp` divides; their results are summed over the devices."""


def divides_batch(parallel: Parallel) -> bool:
    """Whether each device trains on a part of the batch."""
    return parallel in ("dp", "fsdp")


def refuse_undivided(
    mode: Mode, parallel: Parallel, devices: int, *, batch_size: int, microbatches: int, widths: Mapping[str, int]
) -> None:
    """Raise `UserError` if devices cannot divide a step; `tp` divides all `widths`, `fsdp` all but the heads."""
    if devices == 1:
        return
    if mode != "training":
        raise UserError(f"several devices train; give --mode=training, or omit --devices={devices}")
    if microbatches > 1:
        raise UserError(f"--microbatches={microbatches} cannot be used with --devices={devices}; omit one of them")
    divided = {"batch_size": batch_size} if divides_batch(parallel) else {}
    if parallel != "dp":
        divided |= {name: width for name, width in widths.items() if parallel == "tp" or "head" not in name}
    for name, value in divided.items():
        if value % devices:
            nearest = devices * (value // devices + 1)
            option = f"--{name.replace('_', '-')}={value}"
            how = "" if parallel == "dp" else f", by which --parallel={parallel} divides it"
            raise UserError(f"{option} is not a multiple of --devices={devices}{how}; for example {nearest}")


def small_widths(heads: int, head_dim: int, d_ff: int, parallel: Parallel, devices: int) -> tuple[int, int]:
    """Return the least numbers from these on that devices can divide: of heads, and the width of the MLP."""
    of_heads = {"fsdp": devices // gcd(devices, head_dim), "tp": devices}.get(parallel, 1)
    of_width = devices if parallel in ("fsdp", "tp") else 1
    return -(-heads // of_heads) * of_heads, -(-d_ff // of_width) * of_width


def by_device(data: Data, fused: Mapping[str, Sequence[int]], case: Case) -> Data:
    """Return the data; for `tp`, the outputs of layers that compute several results at once are in another order.

    `fused` has the widths of the results by the layer's own name. Afterwards equal parts of the last axis contain an
    equal share of every result: of queries, keys and values [q, k, v] for two devices, [q₁, k₁, v₁, q₂, k₂, v₂].
    """
    return replace(data, weights=_reordered(data.weights, fused, case, lambda order: order))


def in_order(arrays: Mapping[str, np.ndarray], fused: Mapping[str, Sequence[int]], case: Case) -> dict[str, np.ndarray]:
    """Return weights that are ordered `by_device`, or their gradients, in their own order again."""
    return _reordered(arrays, fused, case, np.argsort)


def _reordered(
    arrays: Mapping[str, np.ndarray],
    fused: Mapping[str, Sequence[int]],
    case: Case,
    order_of: Callable[[np.ndarray], np.ndarray],
) -> dict[str, np.ndarray]:
    found = dict(arrays)
    for name, value in arrays.items():
        *_, layer, _ = ["", *name.split(".")]
        if case.parallel == "tp" and layer in fused:
            found[name] = value[..., order_of(_by_device(fused[layer], case.devices))]
    return found


def _by_device(widths: Sequence[int], devices: int) -> np.ndarray:
    """Return the positions of the outputs of a fused layer in their order by device."""
    results = np.split(np.arange(sum(widths)), np.cumsum(widths)[:-1])
    shares = [np.split(result, devices) for result in results]
    return np.concatenate([share for of_device in zip(*shares, strict=True) for share in of_device])


def collectives(
    mode: Mode,
    parallel: Parallel,
    devices: int,
    *,
    weight_bytes: int,
    blocks: int,
    block_bytes: int,
    sum_bytes: int,
    recompute: bool,
) -> tuple[Collective, ...]:
    """Return what devices must exchange in a step of a model of `blocks`, each with `block_bytes` of weights.

    All weights have `weight_bytes`, and what `tp` sums has `sum_bytes`: the activations between the layers. Blocks that
    are computed again (`recompute`) sum the result of their attention again; nothing needs that of the MLP.
    """
    if devices == 1 or mode != "training":
        return ()
    match parallel:
        case "dp":
            return (Collective("all_reduce", 1, weight_bytes),)
        case "fsdp":
            # Blocks' weights are gathered twice; the others are kept from the forward to the backward pass.
            return (
                Collective("all_gather", 2 * blocks + 1, weight_bytes + blocks * block_bytes),
                Collective("reduce_scatter", blocks + 1, weight_bytes),
            )
        case "tp":
            # Attention and MLP each sum their results, and in the backward pass the gradients of their inputs.
            sums = blocks * (5 if recompute else 4)
            return (Collective("all_reduce", sums, sums * sum_bytes),)
        case "none":  # each device trains by itself
            return ()
