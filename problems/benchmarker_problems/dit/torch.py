"""DiT in PyTorch.

Shapes: B batch, H height, W width, L channels of a latent, E of a prediction, N patches, C width of the model, F width
within the MLP, T time steps. Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax
accumulate in fp32, and the loss is fp32.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import attend, recomputes_scores
from benchmarker_problems.dit import Dit
from benchmarker_problems.dit.reference import (
    FREQUENCIES,
    LATENT_CHANNELS,
    LAYER_NORM_EPS,
    position_table,
    time_table,
)
from benchmarker_problems.layers.torch import patches
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, plainly, recomputing, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of DiT."""
    return Support(DONE)


def adaptive_norm(x_BNC: Tensor, shift_B1C: Tensor, scale_B1C: Tensor) -> Tensor:
    """Return LayerNorm(x)·(1 + scale) + shift."""
    return torch.addcmul(shift_B1C, F.layer_norm(x_BNC, x_BNC.shape[-1:], eps=LAYER_NORM_EPS), 1 + scale_B1C)


class Block(nn.Module):
    """Attention and MLP, each on its normalised and modulated input, with a gate and a residual connection."""

    def __init__(self, problem: Dit) -> None:
        super().__init__()
        p = problem
        self.by_head = (p.n_head, p.head_dim)
        self.impl = p.impl
        self.modulation = nn.Linear(p.d_model, 6 * p.d_model)
        self.attn_qkv = nn.Linear(p.d_model, 3 * p.d_model)
        self.attn_proj = nn.Linear(p.d_model, p.d_model)
        self.mlp_fc = nn.Linear(p.d_model, p.d_ff)
        self.mlp_proj = nn.Linear(p.d_ff, p.d_model)

    def forward(self, x_BNC: Tensor, condition_BC: Tensor) -> Tensor:
        """Apply the block."""
        with scope("modulation"):
            shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(condition_BC)[:, None].chunk(6, dim=-1)
        with scope("ln_1"):
            h_BNC = adaptive_norm(x_BNC, shift_1, scale_1)
        with scope("attn_qkv"):
            q_BNHD, k_BNHD, v_BNHD = self.attn_qkv(h_BNC).unflatten(-1, (3, *self.by_head)).unbind(2)
        heads_BNHD = attend(q_BNHD, k_BNHD, v_BNHD, impl=self.impl, bias_Tt=None)
        with scope("attn_proj"):
            x_BNC = torch.addcmul(x_BNC, gate_1, self.attn_proj(heads_BNHD.flatten(2)))
        with scope("ln_2"):
            h_BNC = adaptive_norm(x_BNC, shift_2, scale_2)
        with scope("mlp_fc"):
            inner_BNF = self.mlp_fc(h_BNC)
        with scope("mlp_gelu"):
            inner_BNF = F.gelu(inner_BNF, approximate="tanh")
        with scope("mlp_proj"):
            return torch.addcmul(x_BNC, gate_2, self.mlp_proj(inner_BNF))


class DitModel(nn.Module):
    """The whole model."""

    def __init__(self, problem: Dit) -> None:
        super().__init__()
        p = problem
        self.problem = p
        self.patch_embed = nn.Linear(p.patch_len, p.d_model)
        self.time_fc = nn.Linear(FREQUENCIES, p.d_model)
        self.time_out = nn.Linear(p.d_model, p.d_model)
        self.label_embed = nn.Parameter(torch.empty(p.classes + 1, p.d_model))
        self.run = recomputing if p.recompute else plainly
        self.h = nn.ModuleList(Block(p) for _ in range(p.n_layer))
        self.modulation_f = nn.Linear(p.d_model, 2 * p.d_model)
        self.head = nn.Linear(p.d_model, 2 * p.patch_len)

    def forward(
        self, latents_BHWL: Tensor, timesteps_B: Tensor, labels_B: Tensor, positions_NC: Tensor, waves_T256: Tensor
    ) -> Tensor:
        """Return the prediction, [B, H, W, E]."""
        p = self.problem
        with scope("patch_embed"):
            x_BNC = self.patch_embed(patches(latents_BHWL, p.patch_size)) + positions_NC
        with scope("time_fc"):
            time_BC = self.time_fc(F.embedding(timesteps_B, waves_T256))
        with scope("time_silu"):
            time_BC = F.silu(time_BC)
        with scope("time_out"):
            time_BC = self.time_out(time_BC)
        with scope("label_embed"):
            condition_BC = F.silu(time_BC + F.embedding(labels_B, self.label_embed))
        for block in self.h:
            x_BNC = self.run(block, x_BNC, condition_BC)
        with scope("modulation_f"):
            shift_B1C, scale_B1C = self.modulation_f(condition_BC)[:, None].chunk(2, dim=-1)
        with scope("ln_f"):
            x_BNC = adaptive_norm(x_BNC, shift_B1C, scale_B1C)
        with scope("head"):
            tiles = self.head(x_BNC).view(-1, p.side, p.side, p.patch_size, p.patch_size, 2 * LATENT_CHANNELS)
            prediction_BHWE: Tensor = tiles.transpose(2, 3).reshape(*latents_BHWL.shape[:3], -1)
            return prediction_BHWE


def noise_loss(prediction_BHWE: Tensor, noise_BHWL: Tensor) -> Tensor:
    """Return the mean squared error of the predicted noise, in fp32 or fp64."""
    with scope("loss"):
        sum_dtype = torch.promote_types(prediction_BHWE.dtype, torch.float32)
        return F.mse_loss(prediction_BHWE[..., :LATENT_CHANNELS].to(sum_dtype), noise_BHWL.to(sum_dtype))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Dit, data: Data) -> Workload:
    """Build a step: the prediction; the loss and its gradients; or the loss and an update of the weights."""
    p, types = problem, PRECISIONS[case.precision]
    dtype = DTYPES[types.parameter]
    model = load(framework, lambda: DitModel(p), data, dtype)
    tables = [framework.put(table, dtype) for table in (position_table(p.side, p.d_model), time_table())]
    scores = recomputes_scores(p.impl, False, p.head_dim, DTYPES[types.compute], framework.device)

    def prediction_of(latents: Tensor, timesteps: Tensor, labels: Tensor) -> Tensor:
        prediction_BHWE: Tensor = model(latents, timesteps, labels, *tables)
        return prediction_BHWE

    return workload(
        framework,
        case,
        data,
        model,
        "prediction",
        prediction_of,
        lambda latents, timesteps, labels, noise: noise_loss(prediction_of(latents, timesteps, labels), noise),
        terms=p.batch_size * p.seq_len,
        inputs=("latents", "timesteps", "labels"),
        settings=p.optimizer(),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=scores),
    )
