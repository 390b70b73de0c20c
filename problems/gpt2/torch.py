"""GPT-2 in PyTorch. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.

Mixed precision is autocast over fp32 weights. A short type's LayerNorm and softmax sum in fp32, and the loss is fp32.
"""

from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.torch import attend, causal_bias, recomputes_scores
from benchmarker_problems.gpt2 import Gpt2Params, fixed_loss_scale
from benchmarker_problems.gpt2.reference import (
    ADAM_EPS,
    BETA_1,
    BETA_2,
    LAYER_NORM_EPS,
    LEARNING_RATE,
    WEIGHT_DECAY,
)


@hookimpl
def describe_workload() -> Support:
    """No training in pure fp16: AdamW's ε and squared gradients are below what it can hold."""
    training = ("fp64", "fp32", "tf32", "bf16", "mixed_bf16", "mixed_fp16")
    return Support(
        {
            "inference": (*training, "fp16"),
            "forward_backward": (*training, "fp16"),
            "training": training,
        }
    )


class Block(nn.Module):
    """Attention and MLP, each of the normalised input and added to it."""

    def __init__(self, params: Gpt2Params) -> None:
        super().__init__()
        self.by_head = (params.n_head, params.head_dim)
        self.impl = params.impl
        self.ln_1 = nn.LayerNorm(params.d_model, eps=LAYER_NORM_EPS)
        self.attn_qkv = nn.Linear(params.d_model, 3 * params.d_model)
        self.attn_proj = nn.Linear(params.d_model, params.d_model)
        self.ln_2 = nn.LayerNorm(params.d_model, eps=LAYER_NORM_EPS)
        self.mlp_fc = nn.Linear(params.d_model, params.d_ff)
        self.mlp_proj = nn.Linear(params.d_ff, params.d_model)

    def forward(self, x_BTC: Tensor, bias_TT: Tensor) -> Tensor:
        """One block."""
        with scope("ln_1"):
            h_BTC = self.ln_1(x_BTC)
        with scope("attn_qkv"):
            q_BTHD, k_BTHD, v_BTHD = self.attn_qkv(h_BTC).unflatten(-1, (3, *self.by_head)).unbind(2)
        heads_BTHD = attend(q_BTHD, k_BTHD, v_BTHD, impl=self.impl, bias_Tt=bias_TT)
        with scope("attn_proj"):
            x_BTC = x_BTC + self.attn_proj(heads_BTHD.flatten(2))
        with scope("ln_2"):
            h_BTC = self.ln_2(x_BTC)
        with scope("mlp_fc"):
            inner_BTF = self.mlp_fc(h_BTC)
        with scope("mlp_gelu"):
            inner_BTF = F.gelu(inner_BTF, approximate="tanh")
        with scope("mlp_proj"):
            return x_BTC + self.mlp_proj(inner_BTF)


class Gpt2Model(nn.Module):
    """The whole model; the embedding is the output head too."""

    bias_TT: Tensor

    def __init__(self, params: Gpt2Params) -> None:
        super().__init__()
        self.wte = nn.Parameter(torch.empty(params.vocab_size, params.d_model))
        self.wpe = nn.Parameter(torch.empty(params.positions, params.d_model))
        self.h = nn.ModuleList(Block(params) for _ in range(params.n_layer))
        self.ln_f = nn.LayerNorm(params.d_model, eps=LAYER_NORM_EPS)

    def forward(self, tokens_BT: Tensor, bias_TT: Tensor) -> Tensor:
        """Logits of every position, [B, T, V]."""
        with scope("embed"):
            x_BTC = F.embedding(tokens_BT, self.wte) + self.wpe[: tokens_BT.shape[1]]
        for block in self.h:
            x_BTC = block(x_BTC, bias_TT)
        with scope("ln_f"):
            x_BTC = self.ln_f(x_BTC)
        with scope("lm_head"):
            return F.linear(x_BTC, self.wte)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, params: Gpt2Params, data: Data) -> Workload:
    """A step is the logits, or the loss and its gradients, or the loss and an update of the weights."""
    model = make_model(framework, case, params, data)
    make_step = {"inference": _inference, "forward_backward": _forward_backward, "training": _training}[case.mode]
"""
