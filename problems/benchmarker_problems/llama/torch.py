"""Llama in PyTorch. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.

Mixed precision is autocast over fp32 weights. In 16-bit types RMSNorm and softmax accumulate in fp32, and the loss is
fp32.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.torch import attend, causal_bias, recomputes_scores
from benchmarker_problems.layers.reference import rope_tables
from benchmarker_problems.layers.torch import cross_entropy, rope, swiglu
from benchmarker_problems.llama import LlamaParams
from benchmarker_problems.llama.reference import RMS_NORM_EPS
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of Llama."""
    return Support(DONE)


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection."""

    def __init__(self, params: LlamaParams) -> None:
        super().__init__()
        p = params
        self.params = p
        self.norm_1 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.attn_qkv = nn.Linear(p.d_model, sum(p.heads) * p.head_dim, bias=False)
        self.attn_proj = nn.Linear(p.d_model, p.d_model, bias=False)
        self.norm_2 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.mlp_fc = nn.Linear(p.d_model, 2 * p.d_ff, bias=False)
        self.mlp_proj = nn.Linear(p.d_ff, p.d_model, bias=False)

    def forward(self, x_BTC: Tensor, cos_T1d: Tensor, sin_T1d: Tensor, bias_TT: Tensor) -> Tensor:
        """Apply the block."""
        p = self.params
        with scope("norm_1"):
            h_BTC = self.norm_1(x_BTC)
        with scope("attn_qkv"):
            qkv_BTHD = self.attn_qkv(h_BTC).unflatten(-1, (-1, p.head_dim))
        qk_BTHD, v_BTKD = torch.split(qkv_BTHD, [sum(p.heads[:2]), p.n_kv_head], dim=2)
        with scope("rope"):
            q_BTHD, k_BTKD = torch.split(rope(qk_BTHD, cos_T1d, sin_T1d), [p.n_head, p.n_kv_head], dim=2)
        heads_BTHD = attend(q_BTHD, k_BTKD, v_BTKD, impl=p.impl, bias_Tt=bias_TT)
        with scope("attn_proj"):
            x_BTC = x_BTC + self.attn_proj(heads_BTHD.flatten(2))
        with scope("norm_2"):
            h_BTC = self.norm_2(x_BTC)
        with scope("mlp_fc"):
            gate_up_BTE = self.mlp_fc(h_BTC)
        with scope("mlp_swiglu"):
            inner_BTF = swiglu(gate_up_BTE)
        with scope("mlp_proj"):
            mlp_BTC: Tensor = self.mlp_proj(inner_BTF)
            return x_BTC + mlp_BTC


class LlamaModel(nn.Module):
    """The whole model."""

    def __init__(self, params: LlamaParams) -> None:
        super().__init__()
        p = params
        self.wte = nn.Parameter(torch.empty(p.vocab_size, p.d_model))
        self.h = nn.ModuleList(Block(p) for _ in range(p.n_layer))
        self.norm_f = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.lm_head = None if p.tied_head else nn.Linear(p.d_model, p.vocab_size, bias=False)

    def forward(self, tokens_BT: Tensor, cos_T1d: Tensor, sin_T1d: Tensor, bias_TT: Tensor) -> Tensor:
        """Return the logits of every position, [B, T, V]."""
        with scope("embed"):
            x_BTC = F.embedding(tokens_BT, self.wte)
        for block in self.h:
            x_BTC = block(x_BTC, cos_T1d, sin_T1d, bias_TT)
        with scope("norm_f"):
            x_BTC = self.norm_f(x_BTC)
        with scope("lm_head"):
            return F.linear(x_BTC, self.wte if self.lm_head is None else self.lm_head.weight)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, params: LlamaParams, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types, device = params, PRECISIONS[case.precision], framework.device
    compute_dtype = DTYPES[types.compute]
    model = load(framework, lambda: LlamaModel(p), data, DTYPES[types.parameter])
    bias_TT = causal_bias(p.seq_len, compute_dtype, device)
    cos_T1d, sin_T1d = (
        framework.put(table[:, None], compute_dtype) for table in rope_tables(p.seq_len, p.head_dim, p.rope_theta)
    )
    scores_flops = p.n_layer * product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim)

    def logits_of(tokens: Tensor) -> Tensor:
        logits_BTV: Tensor = model(tokens, cos_T1d, sin_T1d, bias_TT)
        return logits_BTV

    return workload(
        framework,
        case,
        data,
        model,
        "logits",
        logits_of,
        lambda tokens, targets: cross_entropy(logits_of(tokens), targets),
        terms=p.batch_size * p.seq_len,
        recomputed_flops=scores_flops if recomputes_scores(p.impl, True, p.head_dim, compute_dtype, device) else 0,
    )
