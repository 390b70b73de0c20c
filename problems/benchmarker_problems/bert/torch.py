"""BERT in PyTorch. Shapes: B batch, T sequence, C width of the model, V vocabulary, N masked tokens of the batch.

Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax accumulate in fp32, and the loss
is fp32.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import recomputes_scores
from benchmarker_problems.bert import Bert
from benchmarker_problems.layers.torch import TransformerBlock, cross_entropy
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, plainly, recomputing, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of BERT."""
    return Support(DONE)


class BertModel(nn.Module):
    """The whole model; the decoder of the output head uses the weights of the embedding."""

    def __init__(self, problem: Bert) -> None:
        super().__init__()
        p, eps = problem, problem.family.layer_norm_eps
        self.problem = p
        self.wte = nn.Parameter(torch.empty(p.vocab_size, p.d_model))
        self.wpe = nn.Parameter(torch.empty(p.positions, p.d_model))
        self.wtt = nn.Parameter(torch.empty(p.family.token_types, p.d_model))
        self.ln_embed = nn.LayerNorm(p.d_model, eps=eps)
        self.run = recomputing if p.recompute else plainly
        self.h = nn.ModuleList(
            TransformerBlock(p.d_model, p.n_head, p.d_ff, eps=eps, impl=p.impl, post_norm=True)
            for _ in range(p.n_layer)
        )
        self.head_fc = nn.Linear(p.d_model, p.d_model)
        self.head_ln = nn.LayerNorm(p.d_model, eps=eps)
        self.lm_head_bias = nn.Parameter(torch.empty(p.vocab_size))

    def forward(self, tokens_BT: Tensor, masked_N: Tensor) -> Tensor:
        """Return the logits of every position, [B, T, V], or of the masked, [N, V]."""
        first = self.problem.family.first_position
        with scope("embed"):
            x_BTC = F.embedding(tokens_BT, self.wte) + (self.wpe[first : first + tokens_BT.shape[1]] + self.wtt[0])
        with scope("ln_embed"):
            x_BTC = self.ln_embed(x_BTC)
        for block in self.h:
            x_BTC = self.run(block, x_BTC)
        x_C = x_BTC if self.problem.head == "all" else gather_masked(x_BTC, masked_N)
        with scope("head_fc"):
            x_C = self.head_fc(x_C)
        with scope("head_gelu"):
            x_C = F.gelu(x_C)
        with scope("head_ln"):
            x_C = self.head_ln(x_C)
        with scope("lm_head"):
            return F.linear(x_C, self.wte, self.lm_head_bias)


def gather_masked(x_BTC: Tensor, masked_N: Tensor) -> Tensor:
    """Return the rows of the masked positions, [N, C]."""
    with scope("gather_masked"):
        return x_BTC.flatten(0, 1).index_select(0, masked_N)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Bert, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types = problem, PRECISIONS[case.precision]
    model = load(framework, lambda: BertModel(p), data, DTYPES[types.parameter])
    scores = recomputes_scores(p.impl, False, p.head_dim, DTYPES[types.compute], framework.device)

    def loss_of(tokens: Tensor, masked: Tensor, targets: Tensor) -> Tensor:
        logits_V = model(tokens, masked)
        return cross_entropy(logits_V if p.head == "masked" else gather_masked(logits_V, masked), targets)

    return workload(
        framework,
        case,
        p.within_microbatches(data),
        model,
        "logits",
        model,
        loss_of,
        terms=p.masked,
        inputs=("tokens", "masked"),
        settings=p.optimizer(),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=scores),
    )
