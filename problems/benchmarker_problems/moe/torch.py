"""Mixture of experts in PyTorch.

Shapes: B batch, T sequence, C width of the model, F width within an expert, V vocabulary, H heads, E experts, K experts
of a token, N tokens, R rows of experts (a row is one of the N·K choices, or a slot for it).

Mixed precision is autocast over fp32 weights. In 16-bit types RMSNorm and softmax accumulate in fp32, and the loss is
fp32.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import attend, causal_bias, recomputes_scores
from benchmarker_problems.layers.reference import rope_tables
from benchmarker_problems.layers.torch import cross_entropy, rope, swiglu
from benchmarker_problems.moe import MoeParams, recomputed_flops
from benchmarker_problems.moe.reference import RMS_NORM_EPS
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import load, plainly, recomputing, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of a model."""
    return Support(DONE)


class Block(nn.Module):
    """Attention and experts, each on its normalised input and with a residual connection."""

    def __init__(self, params: MoeParams) -> None:
        super().__init__()
        p = params
        self.params = p
        self.norm_1 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.attn_qkv = nn.Linear(p.d_model, sum(p.heads) * p.head_dim, bias=False)
        self.attn_proj = nn.Linear(p.d_model, p.d_model, bias=False)
        self.norm_2 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.moe_router = nn.Linear(p.d_model, p.n_expert, bias=False)
        self.moe_fc = Experts(p.n_expert, p.d_model, 2 * p.d_ff)
        self.moe_proj = Experts(p.n_expert, p.d_ff, p.d_model)

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
            h_NC = self.norm_2(x_BTC).flatten(0, 1)
        with scope("moe_router"):
            gates_NK, chosen_NK = self.route(h_NC)
        with scope("moe_dispatch"):
            choice_R, row_NK, ends_E = slots(chosen_NK, p) if p.dispatch == "capacity" else groups(chosen_NK, p)
            rows_RC = h_NC[torch.clamp(choice_R // p.top_k, max=len(h_NC) - 1)]
        with scope("moe_fc"):
            gate_up_RE = self.moe_fc(rows_RC, ends_E)
        with scope("moe_swiglu"):
            inner_RF = swiglu(gate_up_RE)
        with scope("moe_proj"):
            mixed_RC = self.moe_proj(inner_RF, ends_E)
        with scope("moe_combine"):
            if p.dispatch == "capacity":
                gates_NK = torch.where(row_NK < len(mixed_RC), gates_NK, 0)
                row_NK = torch.clamp(row_NK, max=len(mixed_RC) - 1)
            mixed_NKC = gates_NK.to(mixed_RC.dtype).unsqueeze(-1) * mixed_RC[row_NK]
            y_BTC: Tensor = x_BTC + mixed_NKC.sum(dim=1).view_as(x_BTC)
            return y_BTC

    def route(self, h_NC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of each token's experts and which they are, [N, K]; in fp32 also under autocast."""
        with torch.autocast(h_NC.device.type, enabled=False):
            route_dtype = torch.promote_types(h_NC.dtype, torch.float32)
            scores_NE = F.linear(h_NC.to(route_dtype), self.moe_router.weight.to(route_dtype))
            scores_NK, chosen_NK = torch.topk(scores_NE, self.params.top_k)
            return torch.softmax(scores_NK, dim=-1), chosen_NK


class Experts(nn.Module):
    """A product of each expert's rows with its weights."""

    def __init__(self, n_expert: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_expert, outputs, inputs))

    def forward(self, rows_RI: Tensor, ends_E: Tensor | None) -> Tensor:
        """Return [R, O] of the rows, sorted by expert in groups that end at the given rows, or in equal ones."""
        weight_EIO = self.weight.transpose(1, 2)
        if ends_E is None:
            return torch.bmm(rows_RI.view(len(weight_EIO), -1, rows_RI.shape[1]), weight_EIO).flatten(0, 1)
        device = rows_RI.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows_RI.dtype
        product_RO: Tensor = grouped_product(rows_RI.to(dtype), weight_EIO.to(dtype), ends_E)
        return product_RO


@torch.compiler.disable  # type: ignore[untyped-decorator]
def grouped_product(rows_RI: Tensor, weight_EIO: Tensor, ends_E: Tensor) -> Tensor:
    """Multiply each group of rows with the weights of its expert: by PyTorch's own product if it takes them.

    It is not compiled: `torch.compile` takes the product in bf16 only.
    """
    aligned = all(width * rows_RI.element_size() % 16 == 0 for width in weight_EIO.shape[1:])
    if rows_RI.dtype != torch.float64 and aligned:
        return F.grouped_mm(rows_RI, weight_EIO, offs=ends_E)
    groups = torch.tensor_split(rows_RI, ends_E[:-1].long().cpu())
    return torch.cat([rows @ weight_IO for rows, weight_IO in zip(groups, weight_EIO, strict=True)])


def groups(chosen_NK: Tensor, params: MoeParams) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the choices by expert: return the choice of each row, the row of each choice, and where each expert ends.

    A choice is its index in [N, K].
    """
    sorted_R, choice_R = torch.sort(chosen_NK.flatten(), stable=True)
    row_NK = torch.empty_like(choice_R).scatter_(0, choice_R, torch.arange(len(choice_R), device=choice_R.device))
    experts_E = torch.arange(params.n_expert, device=choice_R.device)
    ends_E = torch.searchsorted(sorted_R, experts_E, right=True, out_int32=True)
    return choice_R, row_NK.view_as(chosen_NK), ends_E


def slots(chosen_NK: Tensor, params: MoeParams) -> tuple[Tensor, Tensor, None]:
    """Give each choice a slot among those of its expert and sequence, in the order of the sequence.

    Return the choice in each slot and the slot of each choice. That of an empty slot, and that of a choice which is
    dropped, are one beyond the last.
    """
    p, device = params, chosen_NK.device
    chosen_BS = chosen_NK.view(-1, p.seq_len * p.top_k)
    sent_BSE = F.one_hot(chosen_BS, p.n_expert)
    place_BS = (sent_BSE.cumsum(dim=1) - 1).gather(2, chosen_BS.unsqueeze(-1)).squeeze(-1)
    first_BS = (chosen_BS * len(chosen_BS) + torch.arange(len(chosen_BS), device=device).unsqueeze(1)) * p.capacity
    slot_count = p.n_expert * len(chosen_BS) * p.capacity
    slot_S = torch.where(place_BS < p.capacity, first_BS + place_BS, slot_count).flatten()
    choices_S = torch.arange(len(slot_S), device=device)
    choice_R = torch.full((slot_count + 1,), len(slot_S), device=device).scatter_(0, slot_S, choices_S)
    return choice_R[:-1], slot_S.view_as(chosen_NK), None


class MoeModel(nn.Module):
    """The whole model."""

    def __init__(self, params: MoeParams) -> None:
        super().__init__()
        p = params
        self.wte = nn.Parameter(torch.empty(p.vocab_size, p.d_model))
        self.run = recomputing if params.recompute else plainly
        self.h = nn.ModuleList(Block(p) for _ in range(p.n_layer))
        self.norm_f = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.lm_head = nn.Linear(p.d_model, p.vocab_size, bias=False)

    def forward(self, tokens_BT: Tensor, cos_T1d: Tensor, sin_T1d: Tensor, bias_TT: Tensor) -> Tensor:
        """Return the logits of every position, [B, T, V]."""
        with scope("embed"):
            x_BTC = F.embedding(tokens_BT, self.wte)
        for block in self.h:
            x_BTC = self.run(block, x_BTC, cos_T1d, sin_T1d, bias_TT)
        with scope("norm_f"):
            x_BTC = self.norm_f(x_BTC)
        with scope("lm_head"):
            logits_BTV: Tensor = self.lm_head(x_BTC)
            return logits_BTV


@hookimpl
def build_workload(framework: TorchFramework, case: Case, params: MoeParams, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types, device = params, PRECISIONS[case.precision], framework.device
    compute_dtype = DTYPES[types.compute]
    model = load(framework, lambda: MoeModel(p), data, DTYPES[types.parameter])
    bias_TT = causal_bias(p.seq_len, compute_dtype, device)
    cos_T1d, sin_T1d = (
        framework.put(table[:, None], compute_dtype) for table in rope_tables(p.seq_len, p.head_dim, p.rope_theta)
    )
    scores = recomputes_scores(p.impl, True, p.head_dim, compute_dtype, device)

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
        microbatches=p.microbatches,
        recomputed_flops=recomputed_flops(p, scores=scores),
    )
