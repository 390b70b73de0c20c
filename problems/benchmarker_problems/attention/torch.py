"""Attention in PyTorch. Shapes: B batch, T sequence (t for keys), H heads, D head dimension."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarker import FLOATS, PRECISIONS, Arrays, Case, Data, Mode, Precision, Support, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import INPUTS, NOT_SCALED, OUTPUTS, Attention, by_row
from benchmarker_problems.fp8 import SCALED
from benchmarker_problems.fp8 import torch as fp8
from benchmarker_problems.layers import Impl


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type, which `scaled_dot_product_attention` has; and fp8 on a CPU, by products."""
    not_on_gpus = ({"precision": name, "device": "cuda"} for name in SCALED)
    precisions: dict[Mode, tuple[str, ...]] = {"inference": (*FLOATS, *SCALED), "forward_backward": FLOATS}
    return Support(precisions, exclusions=(*NOT_SCALED, *not_on_gpus))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Attention, data: Data) -> Workload:
    """Build a step: the attention of one batch; in `forward_backward` also the gradients of q, k and v, by autograd."""
    p, types, device = problem, PRECISIONS[case.precision], framework.device
    dtype = DTYPES[types.parameter]
    if types.scale and case.compile:
        raise UserError("compiled, fp8 is multiplied by columns of V alone, which are not stored so; omit --compile")

    def put(batch: Arrays) -> tuple[Any, ...]:
        if p.depth:
            stored = (batch["q"], by_row(batch["k"]), by_row(batch["v"]))
            return tuple(framework.put(value, dtype) for value in stored)
        if types.scale:
            return tuple(fp8.scaled(framework.put(value), types, dtype, axis) for value, axis in p.by_head(batch))
        return tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode])

    batches = cycle([put(batch) for batch in data.batches])
    function: Callable[..., Tensor]
    if p.depth:
        bias_11S = torch.zeros((1, 1, p.seq_len), dtype=dtype, device=device)
        bias_11S[..., p.keys :] = -torch.inf
        function = partial(attend_to_rows, bias_R1S=bias_11S, impl=p.impl, rows=lambda each: each)
    else:
        attending = partial(attend_scaled, types=types) if types.scale else partial(attend, impl=p.impl)
        bias_dtype = torch.float32 if types.scale else dtype
        function = partial(attending, bias_Tt=causal_bias(p.seq_len, bias_dtype, device) if p.causal else None)
    attention = framework.compiled(function, case.compile)

    def forward() -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return (attention(*next(batches)),)

    def forward_backward() -> tuple[Tensor, ...]:
        *inputs, d_out_BTHD = next(batches)
        inputs = [value.detach().requires_grad_() for value in inputs]
        out_BTHD = attention(*inputs)
        return (out_BTHD.detach(), *torch.autograd.grad(out_BTHD, inputs, d_out_BTHD))

    def outputs(result: tuple[Tensor, ...]) -> Mapping[str, np.ndarray]:
        return {name: value.cpu().double().numpy() for name, value in zip(OUTPUTS, result, strict=False)}

    backward = case.mode == "forward_backward"
    recomputes = backward and recomputes_scores(p.impl, p.causal, p.head_dim, dtype, device)
    recomputed_flops = p.product_flops if recomputes else 0
    return Workload(forward_backward if backward else forward, outputs, recomputed_flops)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values [B, T, H, D] to the heads."""


def causal_bias(seq_len: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the mask to add to the scores: −∞ if the key comes after the query, otherwise 0. Made outside the step."""
    return torch.full((seq_len, seq_len), -torch.inf, dtype=dtype, device=device).triu(1)


def attend(q_BTHD: Tensor, k_BtKD: Tensor, v_BtKD: Tensor, *, impl: Impl, bias_Tt: Tensor | None) -> Tensor:
    """Compute attention on [B, T, H, D], causal if `bias_Tt` is given; `bias_Tt` has the type of q.

    K and V may have fewer heads, each for a group of consecutive query heads.
    """
    batch_size, seq_len, heads, head_dim = q_BTHD.shape
    kv_heads = k_BtKD.shape[2]
    if impl == "fused":
        with scope("attn_fused"):
            out_BHTD = F.scaled_dot_product_attention(
                q_BTHD.transpose(1, 2),
                k_BtKD.transpose(1, 2),
                v_BtKD.transpose(1, 2),
                is_causal=bias_Tt is not None,
                enable_gqa=kv_heads != heads,
            )
            return out_BHTD.transpose(1, 2)
    with scope("attn_q_k"):
        q_BTKGD = (q_BTHD * head_dim**-0.5).unflatten(2, (kv_heads, -1))
        if impl == "einsum":
            scores_BKGTt = torch.einsum("bqkgd,btkd->bkgqt", q_BTKGD, k_BtKD)
        else:
            # The queries of a group are rows of one product with the keys that they share.
            rows_BKRD = q_BTKGD.permute(0, 2, 3, 1, 4).reshape(batch_size, kv_heads, -1, head_dim)
            scores_BKGTt = (rows_BKRD @ k_BtKD.permute(0, 2, 3, 1)).unflatten(2, (-1, seq_len))
    with scope("attn_softmax"):
        if bias_Tt is not None:
            scores_BKGTt = scores_BKGTt.add_(bias_Tt)
        softmax_dtype = torch.promote_types(scores_BKGTt.dtype, torch.float32)
        weights_BKGTt = torch.softmax(scores_BKGTt, dim=-1, dtype=softmax_dtype).to(v_BtKD.dtype)
    with scope("attn_att_v"):
        if impl == "einsum":
            return torch.einsum("bkgqt,btkd->bqkgd", weights_BKGTt, v_BtKD).flatten(2, 3)
        out_BKRD: Tensor = weights_BKGTt.flatten(2, 3) @ v_BtKD.transpose(1, 2)
        out_BKGTD = out_BKRD.view(*weights_BKGTt.shape[:4], head_dim)
        return out_BKGTD.permute(0, 3, 1, 2, 4).flatten(2, 3)


def attend_scaled(
    q_BHTD: fp8.Scaled, k_BHtD: fp8.Scaled, v_BHtD: fp8.Scaled, *, types: Precision, bias_Tt: Tensor | None
) -> Tensor:
    """Compute attention of numbers in fp8 with scales, in fp32 between and after the products: [B, T, H, D]."""
    flat = ([each.flatten(0, 1) for each in factor] for factor in (q_BHTD, k_BHtD, v_BHtD))
    (q, q_scale), (k, k_scale), (v, v_scale) = flat
    with scope("attn_q_k"):
        transposed = k.transpose(1, 2), k_scale.transpose(1, 2).contiguous()
        scores_RTt = fp8.product((q, q_scale * q.shape[-1] ** -0.5), transposed)
    with scope("attn_softmax"):
        if bias_Tt is not None:
            scores_RTt = scores_RTt.add_(bias_Tt)
        weights = fp8.scaled(torch.softmax(scores_RTt, dim=-1), types, q.dtype, -1)
    with scope("attn_att_v"):
        out_RTD = fp8.product(weights, (v, v_scale))
        return out_RTD.view(q_BHTD[0].shape).transpose(1, 2)


def attend_to_rows(
    q_B1HD: Tensor, keys: Tensor, values: Tensor, bias_R1S: Tensor, impl: Impl, rows: Callable[[Tensor], Tensor]
) -> Tensor:
    """Attend from one token of each sequence to a cache of S positions; R is batch · heads of K and V.

    `rows` gives keys and values as [R, S, D]. Queries of a group are rows of one product with the keys that they share.
    `bias_R1S` masks what is not filled; it has one row if that is the same in all sequences.
    """
    batch_size, _, _, head_dim = q_B1HD.shape
    if impl == "fused":
        with scope("attn_fused"):
            k_RSD, v_RSD = rows(keys), rows(values)
            q_BKGD, k_BKSD, v_BKSD = (
                each.reshape(batch_size, len(k_RSD) // batch_size, -1, head_dim) for each in (q_B1HD, k_RSD, v_RSD)
            )
            bias_BK1S = bias_R1S if len(bias_R1S) == 1 else bias_R1S.view(batch_size, -1, *bias_R1S.shape[1:])
            return F.scaled_dot_product_attention(q_BKGD, k_BKSD, v_BKSD, attn_mask=bias_BK1S).reshape(q_B1HD.shape)
    with scope("attn_q_k"):
        k_RSD = rows(keys)
        q_RGD = (q_B1HD * head_dim**-0.5).reshape(len(k_RSD), -1, head_dim)
        by_einsum = impl == "einsum"
        scores_RGS = torch.einsum("rgd,rsd->rgs", q_RGD, k_RSD) if by_einsum else q_RGD @ k_RSD.transpose(1, 2)
    with scope("attn_softmax"):
        scores_RGS = scores_RGS.add_(bias_R1S)
        softmax_dtype = torch.promote_types(scores_RGS.dtype, torch.float32)
        weights_RGS = torch.softmax(scores_RGS, dim=-1, dtype=softmax_dtype).to(values.dtype)
    with scope("attn_att_v"):
        v_RSD = rows(values)
        heads_RGD = torch.einsum("rgs,rsd->rgd", weights_RGS, v_RSD) if by_einsum else weights_RGS @ v_RSD
        return heads_RGD.reshape(q_B1HD.shape)


def recomputes_scores(impl: Impl, causal: bool, head_dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the backward pass recomputes Q·Kᵀ: fused kernels do; PyTorch's fallback (MATH) keeps the T×T matrix."""
    if impl != "fused":
        return False
    probe = torch.empty(1, 1, 16, head_dim, dtype=dtype, device=device, requires_grad=True)
    backend = torch._fused_sdp_choice(probe, probe, probe, is_causal=causal)
    return bool(backend != torch.nn.attention.SDPBackend.MATH.value)
