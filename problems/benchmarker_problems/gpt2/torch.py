"""GPT-2 in PyTorch. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.

Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax accumulate in fp32, and the loss
is fp32.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.torch import attend, causal_bias, recomputes_scores
from benchmarker_problems.gpt2 import Gpt2Params
from benchmarker_problems.gpt2.reference import LAYER_NORM_EPS
from benchmarker_problems.layers.torch import cross_entropy
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of GPT-2."""
    return Support(DONE)


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection."""

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
        """Apply the block."""
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
            mlp_BTC: Tensor = self.mlp_proj(inner_BTF)
            return x_BTC + mlp_BTC


class Gpt2Model(nn.Module):
    """The whole model; the output head uses the weights of the embedding."""

    def __init__(self, params: Gpt2Params) -> None:
        super().__init__()
        self.wte = nn.Parameter(torch.empty(params.vocab_size, params.d_model))
        self.wpe = nn.Parameter(torch.empty(params.positions, params.d_model))
        self.h = nn.ModuleList(Block(params) for _ in range(params.n_layer))
        self.ln_f = nn.LayerNorm(params.d_model, eps=LAYER_NORM_EPS)

    def forward(self, tokens_BT: Tensor, bias_TT: Tensor) -> Tensor:
        """Return the logits of every position, [B, T, V]."""
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
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types, device = params, PRECISIONS[case.precision], framework.device
    compute_dtype = DTYPES[types.compute]
    model = load(framework, lambda: Gpt2Model(p), data, DTYPES[types.parameter])
    bias_TT = causal_bias(p.seq_len, compute_dtype, device)
    scores_flops = p.n_layer * product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim)

    def logits_of(tokens: Tensor) -> Tensor:
        logits_BTV: Tensor = model(tokens, bias_TT)
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
