"""GPT-2 in PyTorch. Shapes: B batch, T sequence, C width of the model, V vocabulary.

Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax accumulate in fp32, and the loss
is fp32.
"""

from collections.abc import Sequence
from functools import partial
from itertools import repeat

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework, scope
from benchmarker_problems.attention.torch import Attend
from benchmarker_problems.generation import torch as generation
from benchmarker_problems.gpt2 import LAYER_NORM_EPS, Gpt2
from benchmarker_problems.layers.torch import TransformerBlock, product
from benchmarker_problems.parallel import STRATEGIES
from benchmarker_problems.parallel.torch import NO_LOSS_SCALING
from benchmarker_problems.quantization.torch import UNSUPPORTED, linear
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import plainly, recomputing


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those without products with quantised weights, or without loss scaling."""
    return Support(DONE, exclusions=(*UNSUPPORTED, *NO_LOSS_SCALING), parallel=STRATEGIES)


class Gpt2Model(nn.Module):
    """The whole model; the output head uses the weights of the embedding."""

    def __init__(self, problem: Gpt2) -> None:
        super().__init__()
        p = problem
        self.wte = nn.Parameter(torch.empty(p.vocab_size, p.d_model))
        self.wpe = nn.Parameter(torch.empty(p.positions, p.d_model))
        self.run = recomputing if p.recompute else plainly
        self.h = nn.ModuleList(
            TransformerBlock(
                p.d_model,
                p.n_head,
                p.d_ff,
                eps=LAYER_NORM_EPS,
                impl=p.impl,
                tanh_gelu=True,
                linear=partial(linear, p.weight_type),
            )
            for _ in range(p.n_layer)
        )
        self.ln_f = nn.LayerNorm(p.d_model, eps=LAYER_NORM_EPS)

    def forward(
        self,
        tokens_BT: Tensor,
        bias_TT: Tensor | None,
        positions_T: Tensor | None = None,
        attentions: Sequence[Attend] | None = None,
    ) -> Tensor:
        """Return the logits of every position, [B, T, V]; with the attention of each block, of the last, [B, V]."""
        with scope("embed"):
            of_position_TC = self.wpe[: tokens_BT.shape[1]] if positions_T is None else self.wpe[positions_T]
            x_BTC = F.embedding(tokens_BT, self.wte) + of_position_TC
        for block, attention in zip(self.h, attentions or repeat(None), strict=False):
            x_BTC = self.run(block, x_BTC, bias_TT, attention)
        if attentions:
            x_BTC = x_BTC[:, -1]
        with scope("ln_f"):
            x_BTC = self.ln_f(x_BTC)
        with scope("lm_head"):
            return product(x_BTC, self.wte)


def loaded(framework: TorchFramework, case: Case, data: Data, problem: Gpt2) -> tuple[Gpt2Model, tuple[()]]:
    """Return the model with the given weights; see `generation.torch.Load`."""
    model: Gpt2Model = generation.load(framework, case, data, lambda: Gpt2Model(problem))
    return model, ()


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Gpt2, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights; or a phase."""
    return generation.build(framework, case, problem, data, partial(loaded, problem=problem))


@hookimpl
def build_engine(framework: TorchFramework, case: Case, problem: Gpt2, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(loaded, problem=problem))
