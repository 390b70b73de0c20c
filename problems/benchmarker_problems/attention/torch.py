"""Attention in PyTorch. Shapes: B batch, T sequence (t for keys), H heads, D head dimension."""

from collections.abc import Mapping
from functools import partial
from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import INPUTS, OUTPUTS, AttentionParams, Impl, product_flops


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type; `scaled_dot_product_attention` supports all of them."""
    precisions = ("fp64", "fp32", "tf32", "bf16", "fp16")
    return Support({"inference": precisions, "forward_backward": precisions})


@hookimpl
def build_workload(framework: TorchFramework, case: Case, params: AttentionParams, data: Data) -> Workload:
    """Build a step: the attention of one batch; in `forward_backward` also the gradients of q, k and v, by autograd."""
    p, dtype, device = params, DTYPES[PRECISIONS[case.precision].parameter], framework.device
    bias_Tt = causal_bias(p.seq_len, dtype, device) if p.causal else None
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode]) for batch in data.batches])
    attention = framework.compiled(partial(attend, impl=p.impl, bias_Tt=bias_Tt), case.compile)

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
    recomputed_flops = product_flops(p.batch_size, p.heads, p.seq_len, p.head_dim) if recomputes else 0
    return Workload(forward_backward if backward else forward, outputs, recomputed_flops)


def causal_bias(seq_len: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the mask to add to the scores: −∞ if the key comes after the query, otherwise 0. Made outside the step."""
    return torch.full((seq_len, seq_len), -torch.inf, dtype=dtype, device=device).triu(1)


def attend(q_BTHD: Tensor, k_BtHD: Tensor, v_BtHD: Tensor, *, impl: Impl, bias_Tt: Tensor | None) -> Tensor:
    """Compute attention on [B, T, H, D], causal if `bias_Tt` is given; `bias_Tt` has the type of q."""
    if impl == "fused":
        with scope("attn_fused"):
            out_BHTD = F.scaled_dot_product_attention(
                q_BTHD.transpose(1, 2), k_BtHD.transpose(1, 2), v_BtHD.transpose(1, 2), is_causal=bias_Tt is not None
            )
            return out_BHTD.transpose(1, 2)
    with scope("attn_q_k"):
        q_BTHD = q_BTHD * q_BTHD.shape[-1] ** -0.5
        if impl == "einsum":
            scores_BHTt = torch.einsum("bqhd,bkhd->bhqk", q_BTHD, k_BtHD)
        else:
            scores_BHTt = q_BTHD.transpose(1, 2) @ k_BtHD.permute(0, 2, 3, 1)
    with scope("attn_softmax"):
        if bias_Tt is not None:
            scores_BHTt = scores_BHTt.add_(bias_Tt)
        softmax_dtype = torch.promote_types(scores_BHTt.dtype, torch.float32)
        weights_BHTt = torch.softmax(scores_BHTt, dim=-1, dtype=softmax_dtype).to(v_BtHD.dtype)
    with scope("attn_att_v"):
        if impl == "einsum":
            return torch.einsum("bhqk,bkhd->bqhd", weights_BHTt, v_BtHD)
        return (weights_BHTt @ v_BtHD.transpose(1, 2)).transpose(1, 2)


def recomputes_scores(impl: Impl, causal: bool, head_dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the backward pass recomputes Q·Kᵀ: fused kernels do; PyTorch's fallback (MATH) keeps the T×T matrix."""
    if impl != "fused":
        return False
    probe = torch.empty(1, 1, 16, head_dim, dtype=dtype, device=device, requires_grad=True)
    backend = torch._fused_sdp_choice(probe, probe, probe, is_causal=causal)
    return bool(backend != torch.nn.attention.SDPBackend.MATH.value)
