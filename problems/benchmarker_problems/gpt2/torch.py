"""GPT-2 in PyTorch. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.

Mixed precision is autocast over fp32 weights. In 16-bit types LayerNorm and softmax accumulate in fp32, and the loss
is fp32.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.torch import attend, causal_bias, recomputes_scores
from benchmarker_problems.gpt2 import DONE, Gpt2Params, fixed_loss_scale
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
    """Return all precisions of GPT-2."""
    return Support(DONE)


Batches = Iterator[dict[str, Tensor]]
Step = Callable[[], dict[str, Tensor]]


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
    types = PRECISIONS[case.precision]
    dtype, compute_dtype, device = DTYPES[types.parameter], DTYPES[types.compute], framework.device
    model = make_model(framework, params, data, dtype)
    bias_TT = causal_bias(params.seq_len, compute_dtype, device)
    batches = cycle(
        [{name: framework.put(value, torch.int64) for name, value in batch.items()} for batch in data.batches]
    )

    def logits_of(tokens: Tensor) -> Tensor:
        with torch.autocast(device.type, compute_dtype) if types.is_mixed else nullcontext():
            logits_BTV: Tensor = model(tokens, bias_TT)
            return logits_BTV

    def loss_of(tokens: Tensor, targets: Tensor) -> Tensor:
        logits_BTV = logits_of(tokens)
        with scope("loss"):
            sum_dtype = torch.promote_types(logits_BTV.dtype, torch.float32)
            return F.cross_entropy(logits_BTV.flatten(0, 1).to(sum_dtype), targets.flatten())

    loss_scale = fixed_loss_scale(params) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0
    if case.mode == "inference":
        step = inference_step(framework.compiled(logits_of, case.compile), batches)
    elif case.mode == "forward_backward":
        weights = {f"d_{name}": model.get_parameter(parameter_name(name)) for name in data.weights}
        compiled = framework.compiled(loss_of, case.compile)
        step = forward_backward_step(compiled, batches, weights, loss_scale, scale_left)
    else:
        scaler = torch.amp.GradScaler(device.type, enabled=case.precision == "mixed_fp16")
        step = training_step(framework.compiled(loss_of, case.compile), batches, model, scaler)

    def outputs(result: dict[str, Tensor]) -> Mapping[str, np.ndarray]:
        return {
            name: transposed(name, value.cpu().double().numpy()) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    p = params
    backward = case.mode != "inference"
    recomputes = backward and recomputes_scores(p.impl, True, p.head_dim, compute_dtype, device)
    scores_flops = p.n_layer * product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim)
    return Workload(step, outputs, scores_flops if recomputes else 0)


def make_model(framework: TorchFramework, params: Gpt2Params, data: Data, dtype: torch.dtype) -> Gpt2Model:
    """Return the model with the given weights, on the device."""
    with torch.device("meta"):
        model = Gpt2Model(params)
    weights = {
        parameter_name(name): framework.put(np.ascontiguousarray(transposed(name, weight)), dtype)
        for name, weight in data.weights.items()
    }
    model.load_state_dict(weights, assign=True)
    return model


def parameter_name(name: str) -> str:
    """Return the name of a weight in PyTorch's modules."""
    return name.replace(".scale", ".weight").replace(".kernel", ".weight")


def transposed(name: str, value: np.ndarray) -> np.ndarray:
    """Convert a weight or gradient to PyTorch's layout or back; PyTorch's kernels are [outputs, inputs]."""
    return value.T if name.endswith(".kernel") else value


def inference_step(logits_of: Callable[[Tensor], Tensor], batches: Batches) -> Step:
    """Return the step that computes the logits of the next batch."""

    def step() -> dict[str, Tensor]:
        with torch.inference_mode():
            return {"logits": logits_of(next(batches)["tokens"])}

    return step


def forward_backward_step(
    loss_of: Callable[..., Tensor],
    batches: Batches,
    weights: Mapping[str, Tensor],
    loss_scale: float,
    scale_left: float,
) -> Step:
    """Return the step that computes the loss of the next batch and its gradients.

    The backward pass uses the loss times `loss_scale`; the gradients returned are the true ones times `scale_left`.
    """

    def step() -> dict[str, Tensor]:
        loss = loss_of(**next(batches))
        gradients = torch.autograd.grad(loss * loss_scale, list(weights.values()))
        if scale_left != loss_scale:
            torch._foreach_mul_(gradients, scale_left / loss_scale)
        return {"loss": loss.detach(), **dict(zip(weights, gradients, strict=True))}

    return step


def training_step(
    loss_of: Callable[..., Tensor], batches: Batches, model: Gpt2Model, scaler: torch.amp.GradScaler
) -> Step:
    """Return the step that computes the loss of the next batch and updates the weights in place with AdamW."""
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(BETA_1, BETA_2),
        eps=ADAM_EPS,
        fused=True,
    )

    def step() -> dict[str, Tensor]:
        loss = loss_of(**next(batches))
        torch.autograd.backward(scaler.scale(loss))
        with scope("optimizer"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return {"loss": loss.detach()}

    return step
