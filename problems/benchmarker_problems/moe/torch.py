"""Mixture of experts in PyTorch.

Shapes: B batch, T sequence, C width of the model, F width within an expert, E experts, K experts of a token, N tokens,
R rows of experts (a row is one of the N·K choices, or a slot for it).
"""

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework, scope
from benchmarker_problems import decoder
from benchmarker_problems.decoder.torch import SUPPORT, loaded
from benchmarker_problems.generation import torch as generation
from benchmarker_problems.layers.torch import swiglu
from benchmarker_problems.moe import Moe
from benchmarker_problems.quantization import WeightType
from benchmarker_problems.quantization.torch import Quantized


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those without products with quantised weights."""
    return SUPPORT


class Block(decoder.torch.Block):
    """Attention and experts."""

    def __init__(self, problem: Moe) -> None:
        super().__init__(problem)
        p = problem
        self.moe_router = nn.Linear(p.d_model, p.n_expert, bias=False)
        experts = Experts if p.weight_type == "full" else partial(QuantizedExperts, p.weight_type)
        self.moe_fc = experts(p.n_expert, p.d_model, 2 * p.d_ff)
        self.moe_proj = experts(p.n_expert, p.d_ff, p.d_model)

    def mlp(self, h_BTC: Tensor, x_BTC: Tensor) -> Tensor:
        """Return the sum of the experts of the normalised input, weighted by the router, and the residual."""
        p, h_NC = self.problem, h_BTC.flatten(0, 1)
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
            scores_NK, chosen_NK = torch.topk(scores_NE, self.problem.top_k)
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


class QuantizedExperts(Quantized):
    """The same with quantised weights: a product for each expert that a row is sent to."""

    def __init__(self, weight_type: WeightType, n_expert: int, inputs: int, outputs: int) -> None:
        super().__init__(weight_type, (n_expert, inputs, outputs))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, rows_RI: Tensor, ends_E: Tensor) -> Tensor:
        """Return [R, O] of the rows, sorted by expert in groups that end at the given rows."""
        groups = torch.tensor_split(rows_RI, ends_E[:-1].long().cpu())
        experts = zip(groups, self.weight, self.kernel_scale, strict=True)
        return torch.cat([self.product(rows_RI, *kernel) for rows_RI, *kernel in experts if len(rows_RI)])


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


def groups(chosen_NK: Tensor, problem: Moe) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the choices by expert: return the choice of each row, the row of each choice, and where each expert ends.

    A choice is its index in [N, K].
    """
    sorted_R, choice_R = torch.sort(chosen_NK.flatten(), stable=True)
    row_NK = torch.empty_like(choice_R).scatter_(0, choice_R, torch.arange(len(choice_R), device=choice_R.device))
    experts_E = torch.arange(problem.n_expert, device=choice_R.device)
    ends_E = torch.searchsorted(sorted_R, experts_E, right=True, out_int32=True)
    return choice_R, row_NK.view_as(chosen_NK), ends_E


def slots(chosen_NK: Tensor, problem: Moe) -> tuple[Tensor, Tensor, None]:
    """Give each choice a slot among those of its expert and sequence, in the order of the sequence.

    Return the choice in each slot and the slot of each choice. That of an empty slot, and that of a choice which is
    dropped, are one beyond the last.
    """
    p, device = problem, chosen_NK.device
    chosen_BS = chosen_NK.view(-1, p.seq_len * p.top_k)
    sent_BSE = F.one_hot(chosen_BS, p.n_expert)
    place_BS = (sent_BSE.cumsum(dim=1) - 1).gather(2, chosen_BS.unsqueeze(-1)).squeeze(-1)
    first_BS = (chosen_BS * len(chosen_BS) + torch.arange(len(chosen_BS), device=device).unsqueeze(1)) * p.capacity
    slot_count = p.n_expert * len(chosen_BS) * p.capacity
    slot_S = torch.where(place_BS < p.capacity, first_BS + place_BS, slot_count).flatten()
    choices_S = torch.arange(len(slot_S), device=device)
    choice_R = torch.full((slot_count + 1,), len(slot_S), device=device).scatter_(0, slot_S, choices_S)
    return choice_R[:-1], slot_S.view_as(chosen_NK), None


@hookimpl
def build_workload(framework: TorchFramework, problem: Moe, case: Case, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    return generation.build(framework, case, problem, data, partial(loaded, problem=problem, block=Block))


@hookimpl
def build_engine(framework: TorchFramework, case: Case, problem: Moe, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(loaded, problem=problem, block=Block))
