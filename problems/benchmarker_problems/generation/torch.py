"""Text generation in PyTorch: the cache is allocated once and changed in place.

Shapes: B batch, P prompt or pages, S positions of the cache, R batch · heads of keys and values, D head dimension, V
vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Workload
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import Impl
from benchmarker_problems.attention.torch import Attention, attend, attend_to_rows, causal_bias
from benchmarker_problems.generation import PAGE, page_table, step_and_tokens

Keys = tuple[Tensor, Tensor]
"""Keys and values of a block: [R, S, D], or pages [pages · heads, 16, D]."""
Cache = list[Keys]
Model = Callable[[Tensor, Tensor, Sequence[Attention]], Tensor]
"""From tokens [B, T], their positions [T] and the attention of each block to the last one's logits [B, V]."""


def attentions_into(cache: Cache, table_RP: Tensor | None, positions_T: Tensor, impl: Impl) -> list[Attention]:
    """Return the attention of each block, which writes keys and values to the cache.

    Several tokens are the prompt, which is first and attends to itself. The table says where pages are, if any.
    """
    (first, _), *_ = cache
    dtype, device, length = first.dtype, first.device, len(positions_T)
    if length > 1:
        bias_TS = causal_bias(length, dtype, device)
    else:
        room = first.shape[1] if table_RP is None else table_RP.shape[1] * PAGE
        after_1S = torch.arange(room, device=device) > positions_T[:, None]
        bias_TS = torch.zeros(after_1S.shape, dtype=dtype, device=device).masked_fill_(after_1S, -torch.inf)

    def write(into: Tensor, new_RTD: Tensor) -> None:
        if table_RP is None:
            into.index_copy_(1, positions_T, new_RTD)
        else:
            into[table_RP[:, positions_T // PAGE], positions_T % PAGE] = new_RTD

    def rows(each: Tensor) -> Tensor:
        return each if table_RP is None else each[table_RP].flatten(1, 2)

    def attention(keys: Keys, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        with scope("cache_write"):
            for into, new_BTKD in zip(keys, (k_BTKD, v_BTKD), strict=True):
                write(into, new_BTKD.transpose(1, 2).flatten(0, 1).to(into.dtype))
        if length > 1:
            return attend(q_BTHD, k_BTKD, v_BTKD, impl=impl, bias_Tt=bias_TS)
        return attend_to_rows(q_BTHD, *keys, bias_TS, impl, rows)

    return [partial(attention, keys) for keys in cache]


def workload(
    framework: TorchFramework, case: Case, params: Any, data: Data, model: Model, shape: tuple[int, int, int, int]
) -> Workload:
    """Return the workload of a phase; `shape` is that of the cache: blocks, and what keys and values have in each."""
    types, device = PRECISIONS[case.precision], framework.device
    compute_dtype = DTYPES[types.compute]
    blocks, *of_block = shape
    zeros = partial(torch.zeros, of_block, dtype=compute_dtype, device=device)
    cache = [(zeros(), zeros()) for _ in range(blocks)]
    forced = params.decoding == "forced"
    pages_RP = page_table(params)
    table_RP = None if pages_RP is None else framework.put(pages_RP, torch.int64)

    def advance(sequence_BS: Tensor, tokens_BT: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(device.type, compute_dtype, enabled=types.is_mixed):
            logits_BV = model(tokens_BT, positions_T, attentions_into(cache, table_RP, positions_T, params.impl))
        with scope("next_token"):
            if forced:
                following_1 = torch.clamp(positions_T[-1:] + 1, max=sequence_BS.shape[1] - 1)
                return sequence_BS[:, following_1], logits_BV
            next_B1 = logits_BV.argmax(dim=-1, keepdim=True)
            return next_B1, next_B1

    compiled = framework.compiled(advance, case.compile)

    def run(sequence_BS: Tensor, tokens_BT: Tensor, position: int) -> tuple[Tensor, int, Tensor]:
        length = tokens_BT.shape[1]
        with torch.inference_mode():
            next_B1, result = compiled(sequence_BS, tokens_BT, positions[position : position + length])
        return next_B1, position + length, result

    def outputs(result: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {
            name: (torch.stack(value, dim=1) if isinstance(value, list) else value).squeeze(-1).cpu().double().numpy()
            for name, value in result.items()
        }

    positions = torch.arange(params.seq_len, device=device)
    put = partial(framework.put, dtype=torch.int64)
    step, tokens = step_and_tokens(params, data, put, Tensor.cpu, 0, run)
    return Workload(step, outputs, tokens=tokens)
