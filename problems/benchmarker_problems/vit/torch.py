"""ViT in PyTorch. Shapes: B batch, N patches, T tokens, C width of the model, K classes.

Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax accumulate in fp32, and the loss
is fp32.
"""

import torch
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import recomputes_scores
from benchmarker_problems.layers.torch import TransformerBlock, cross_entropy, patches
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, plainly, recomputing, workload
from benchmarker_problems.vit import LAYER_NORM_EPS, Vit


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of ViT."""
    return Support(DONE)


class VitModel(nn.Module):
    """The whole model."""

    def __init__(self, problem: Vit) -> None:
        super().__init__()
        p = problem
        self.problem = p
        self.patch_embed = nn.Linear(p.patch_len, p.d_model)
        self.class_token = nn.Parameter(torch.empty(p.d_model))
        self.wpe = nn.Parameter(torch.empty(p.seq_len, p.d_model))
        self.run = recomputing if p.recompute else plainly
        self.h = nn.ModuleList(
            TransformerBlock(p.d_model, p.n_head, p.d_ff, eps=LAYER_NORM_EPS, impl=p.impl) for _ in range(p.n_layer)
        )
        self.ln_f = nn.LayerNorm(p.d_model, eps=LAYER_NORM_EPS)
        self.head = nn.Linear(p.d_model, p.classes)

    def forward(self, images_BHW3: Tensor) -> Tensor:
        """Return the logits, [B, K]."""
        p = self.problem
        with scope("patch_embed"):
            patches_BNC = self.patch_embed(patches(images_BHW3, p.patch_size))
        with scope("embed"):
            class_B1C = self.class_token.expand(len(images_BHW3), 1, -1)
            x_BTC = torch.cat([class_B1C, patches_BNC], dim=1) + self.wpe
        for block in self.h:
            x_BTC = self.run(block, x_BTC)
        with scope("ln_f"):
            x_BC = self.ln_f(x_BTC[:, 0])
        with scope("head"):
            logits_BK: Tensor = self.head(x_BC)
            return logits_BK


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Vit, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types = problem, PRECISIONS[case.precision]
    model = load(framework, lambda: VitModel(p), data, DTYPES[types.parameter])
    scores = recomputes_scores(p.impl, False, p.head_dim, DTYPES[types.compute], framework.device)
    return workload(
        framework,
        case,
        data,
        model,
        "logits",
        model,
        lambda images, targets: cross_entropy(model(images), targets),
        terms=p.batch_size,
        inputs=("images",),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=scores),
    )
