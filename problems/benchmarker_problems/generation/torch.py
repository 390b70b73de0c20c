"""Language models in PyTorch: their steps, and text generation, in phases and as an engine.

The cache of text generation is allocated once and changed in place.

Shapes: B batch, P prompt or pages, S positions of the cache, R batch · heads of keys and values, D head dimension, V
vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Engine, Workload
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import Attend, attend, attend_to_rows, causal_bias, recomputes_scores
from benchmarker_problems.generation import PAGE, page_table, step_and_tokens
from benchmarker_problems.layers import Impl
from benchmarker_problems.layers.torch import cross_entropy
from benchmarker_problems.parallel import by_device, in_order
from benchmarker_problems.parallel.torch import averaging, divide, with_local
from benchmarker_problems.steps import torch as steps

Keys = tuple[Tensor, Tensor]
"""Keys and values of a block: [R, S, D], or pages [pages · heads, 16, D]."""
Cache = list[Keys]
Load = Callable[[TorchFramework, Case, Data], tuple[nn.Module, tuple[Any, ...]]]
"""From weights to the model on the device, and what else it takes between the tokens and the bias of attention."""
Model = Callable[[Tensor, Tensor, Sequence[Attend]], Tensor]
"""From tokens [B, T], their positions [T] or [B, T], and the attention of each block to the last logits [B, V]."""
Write = Callable[[Tensor, Tensor], object]
"""Writes the keys or values [R, T, D] of tokens to a cache."""
Rows = Callable[[Tensor], Tensor]
"""From a cache to its keys or values [R, S, D]."""


def attentions_into(
    cache: Cache, length: int, positions_R: Tensor, room: int, write: Write, impl: Impl, rows: Rows = lambda each: each
) -> list[Attend]:
    """Return the attention of each block, which writes keys and values to the cache with room for so many positions.

    Several tokens are the prompt, which is first and attends to itself. A single one is at `positions_R`, of which
    there is one if all sequences have the same.
    """
    (first, _), *_ = cache
    dtype, device = first.dtype, first.device
    if length > 1:
        bias = causal_bias(length, dtype, device)
    else:
        after_R1S = torch.arange(room, device=device) > positions_R[:, None, None]
        bias = torch.zeros(after_R1S.shape, dtype=dtype, device=device).masked_fill_(after_R1S, -torch.inf)

    def attention(keys: Keys, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        with scope("cache_write"):
            for into, new_BTKD in zip(keys, (k_BTKD, v_BTKD), strict=True):
                write(into, new_BTKD.transpose(1, 2).flatten(0, 1).to(into.dtype))
        if length > 1:
            return attend(q_BTHD, k_BTKD, v_BTKD, impl=impl, bias_Tt=bias)
        return attend_to_rows(q_BTHD, *keys, bias, impl, rows)

    return [partial(attention, keys) for keys in cache]


def at_positions(positions_T: Tensor, table_RP: Tensor | None = None) -> Write:
    """Return what writes the tokens of all sequences to these positions, in pages if there is a table of them."""

    def write(into: Tensor, new_RTD: Tensor) -> None:
        if table_RP is None:
            into.index_copy_(1, positions_T, new_RTD)
        else:
            into[table_RP[:, positions_T // PAGE], positions_T % PAGE] = new_RTD

    return write


def empty_cache(framework: TorchFramework, case: Case, shape: tuple[int, int, int, int]) -> Cache:
    """Return a cache of a shape: blocks, R, S and D."""
    blocks, *of_block = shape
    dtype = DTYPES[PRECISIONS[case.precision].compute]
    zeros = partial(torch.zeros, of_block, dtype=dtype, device=framework.device)
    return [(zeros(), zeros()) for _ in range(blocks)]


def load(framework: TorchFramework, case: Case, data: Data, made: Callable[[], Any]) -> Any:
    """Return a model with the given weights on the device; several devices divide each block of it."""
    return steps.load(
        framework,
        made,
        data,
        DTYPES[PRECISIONS[case.precision].parameter],
        lambda model: divide(model, model.h, case.parallel, framework.mesh),
    )


def build(framework: TorchFramework, case: Case, problem: Any, data: Data, loaded: Load) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights; or a phase."""
    p, device, compute_dtype = problem, framework.device, DTYPES[PRECISIONS[case.precision].compute]
    fused = p.fused_widths()
    model, more = loaded(framework, case, by_device(data, fused, case))
    if p.phase != "none":
        return workload(framework, case, p, data, continuing(model, more))
    bias_TT = causal_bias(p.seq_len, compute_dtype, device)
    scores = recomputes_scores(p.impl, True, p.head_dim, compute_dtype, device)
    run = averaging(model, case.parallel, framework)

    def logits_of(tokens: Tensor) -> Tensor:
        logits_BTV: Tensor = run(tokens, *more, bias_TT)
        return logits_BTV

    made = steps.workload(
        framework,
        case,
        data,
        model,
        "logits",
        logits_of,
        lambda tokens, targets: cross_entropy(logits_of(tokens), targets),
        terms=p.batch_size * p.seq_len,
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=scores),
        in_order=partial(in_order, fused=fused, case=case),
    )
    return with_local(made, framework, lambda silent: build(silent, case, problem, data, loaded))


def continuing(model: nn.Module, more: Sequence[Any]) -> Model:
    """Return the model as the phases and an engine call it."""

    def continued(tokens_BT: Tensor, positions: Tensor, attentions: Sequence[Attend]) -> Tensor:
        logits_BV: Tensor = model(tokens_BT, *more, None, positions, attentions)
        return logits_BV

    return continued


def workload(framework: TorchFramework, case: Case, problem: Any, data: Data, model: Model) -> Workload:
    """Return the workload of a phase."""
    types, device, shape = PRECISIONS[case.precision], framework.device, problem.cache_shape
    compute_dtype = DTYPES[types.compute]
    cache = empty_cache(framework, case, shape)
    forced = problem.decoding == "forced"
    pages_RP = page_table(problem)
    table_RP = None if pages_RP is None else framework.put(pages_RP, torch.int64)
    room = shape[2] if pages_RP is None else pages_RP.shape[1] * PAGE

    def rows(each: Tensor) -> Tensor:
        return each if table_RP is None else each[table_RP].flatten(1, 2)

    def advance(sequence_BS: Tensor, tokens_BT: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        write = at_positions(positions_T, table_RP)
        with torch.autocast(device.type, compute_dtype, enabled=types.is_mixed):
            attentions = attentions_into(cache, len(positions_T), positions_T, room, write, problem.impl, rows)
            logits_BV = model(tokens_BT, positions_T, attentions)
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

    positions = torch.arange(problem.seq_len, device=device)
    put = partial(framework.put, dtype=torch.int64)
    step, tokens = step_and_tokens(problem, data, put, Tensor.cpu, 0, run)
    return Workload(step, outputs, tokens=tokens)


def engine(framework: TorchFramework, case: Case, problem: Any, data: Data, loaded: Load) -> Engine:
    """Build a text-generation engine."""
    types, device, model = PRECISIONS[case.precision], framework.device, continuing(*loaded(framework, case, data))
    cache = empty_cache(framework, case, problem.cache_shape)
    slots, (_, rows, room, _) = problem.batch_size, problem.cache_shape
    heads = rows // slots
    all_rows, positions = torch.arange(rows, device=device), torch.arange(room, device=device)
    tokens_B1 = torch.zeros((slots, 1), dtype=torch.int64, device=device)
    positions_B1 = torch.zeros_like(tokens_B1)

    def next_tokens(tokens_BT: Tensor, positions_BT: Tensor, attentions: Sequence[Attend]) -> Tensor:
        with torch.autocast(device.type, DTYPES[types.compute], enabled=types.is_mixed):
            return model(tokens_BT, positions_BT, attentions).argmax(dim=-1, keepdim=True)

    def fill(slot: int, prompt_P: np.ndarray) -> int:
        length = len(prompt_P)
        positions_T, rows_of_slot = positions[:length], slice(slot * heads, (slot + 1) * heads)
        of_slot = [(k_RSD[rows_of_slot], v_RSD[rows_of_slot]) for k_RSD, v_RSD in cache]
        with torch.inference_mode():
            attentions = attentions_into(of_slot, length, positions_T, room, at_positions(positions_T), problem.impl)
            next_11 = next_tokens(framework.put(prompt_P, torch.int64)[None], positions_T, attentions)
            tokens_B1[slot], positions_B1[slot] = next_11[0], min(length, room - 1)
        return int(next_11)

    def advance(tokens_B1: Tensor, positions_B1: Tensor) -> Tensor:
        positions_R = positions_B1.repeat_interleave(heads)

        def write(into_RSD: Tensor, new_R1D: Tensor) -> None:
            into_RSD[all_rows, positions_R] = new_R1D[:, 0]

        return next_tokens(tokens_B1, positions_B1, attentions_into(cache, 1, positions_R, room, write, problem.impl))

    compiled = framework.compiled(advance, case.compile)

    def decode() -> np.ndarray:
        with torch.inference_mode():
            tokens_B1.copy_(compiled(tokens_B1, positions_B1))
            positions_B1.add_(1).clamp_(max=room - 1)
        return tokens_B1[:, 0].cpu().numpy()

    return Engine(fill, decode, slots, room, problem.vocab_size)
