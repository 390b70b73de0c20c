"""DLRM in PyTorch. Shapes: B batch, S tables, P indices of a bag, D width of a row, I inputs, N vectors, Q pairs.

Mixed precision is autocast over fp32 weights. In 16-bit types the loss is fp32. Gradients end at the sums of the bags:
training adds them to the rows looked up, so that no gradient of the size of the tables exists.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from itertools import cycle, pairwise

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.dlrm import Dlrm, pair_positions
from benchmarker_problems.dlrm.reference import BAGS, LEARNING_RATE, TABLES
from benchmarker_problems.steps import DONE, fixed_loss_scale
from benchmarker_problems.steps.torch import inference_step, load, outputs_last, parameter_name


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of DLRM."""
    return Support(DONE)


class DlrmModel(nn.Module):
    """The whole model; the tables are a buffer, since no gradient of their size is wanted."""

    embeddings: Tensor

    def __init__(self, problem: Dlrm, pairs_Q: Tensor) -> None:
        super().__init__()
        p = problem
        self.pairs_Q = pairs_Q
        self.register_buffer(TABLES, torch.empty(p.tables * p.rows, p.embedding_dim))
        self.bottom = linear_layers(p.bottom_widths)
        self.top = linear_layers(p.top_widths)

    def pool(self, indices_BSP: Tensor) -> Tensor:
        """Return the sum of the rows of each bag, [B, S, D]."""
        with scope("embed"):
            bags_BD = F.embedding_bag(indices_BSP.flatten(0, 1), self.embeddings, mode="sum")
            return bags_BD.view(*indices_BSP.shape[:2], -1)

    def logits(self, dense_BI: Tensor, bags_BSD: Tensor) -> Tensor:
        """Return the logits, [B]."""
        bottom_BD = dense_BI
        with scope("bottom_mlp"):
            for layer in self.bottom:
                bottom_BD = F.relu(layer(bottom_BD))
        with scope("interaction"):
            vectors_BND = torch.cat([bottom_BD[:, None], bags_BSD.to(bottom_BD.dtype)], dim=1)
            products_BNN = torch.bmm(vectors_BND, vectors_BND.mT)
            x_BI = torch.cat([bottom_BD, products_BNN.flatten(1).index_select(1, self.pairs_Q)], dim=1)
        with scope("top_mlp"):
            *hidden, last = self.top
            for layer in hidden:
                x_BI = F.relu(layer(x_BI))
            logits_B1: Tensor = last(x_BI)
            return logits_B1[:, 0]


def linear_layers(widths: tuple[int, ...]) -> nn.ModuleList:
    """Return linear layers from each width to the next."""
    return nn.ModuleList(nn.Linear(*each) for each in pairwise(widths))


def binary_cross_entropy(logits_B: Tensor, targets_B: Tensor) -> Tensor:
    """Return the mean binary cross-entropy, in fp32 or fp64."""
    with scope("loss"):
        dtype = torch.promote_types(logits_B.dtype, torch.float32)
        return F.binary_cross_entropy_with_logits(logits_B.to(dtype), targets_B.to(dtype))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Dlrm, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types = problem, PRECISIONS[case.precision]
    pairs_Q = framework.put(pair_positions(p.vectors))
    model = load(framework, lambda: DlrmModel(p, pairs_Q), data, DTYPES[types.parameter])
    mlps = {name: model.get_parameter(parameter_name(name)) for name in data.weights if name != TABLES}
    weights: list[Tensor] = list(mlps.values())
    tables_RD = model.embeddings
    batches = cycle([[_put(framework, batch, DTYPES[types.parameter])] for batch in data.batches])
    loss_scale = fixed_loss_scale(p.batch_size) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0
    # An autocast that does nothing would keep scopes out of an exported graph.
    autocast = torch.autocast(framework.device.type, DTYPES[types.compute]) if types.is_mixed else nullcontext()

    def logits_of(dense: Tensor, indices: Tensor) -> Tensor:
        with autocast:
            return model.logits(dense, model.pool(indices))

    def loss_of(dense: Tensor, bags: Tensor, targets: Tensor) -> Tensor:
        with autocast:
            return binary_cross_entropy(model.logits(dense, bags), targets)

    loss_of = framework.compiled(loss_of, case.compile)

    def loss_and_gradients(batch: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        bags_BSD = model.pool(batch["indices"]).requires_grad_()
        loss = loss_of(batch["dense"], bags_BSD, batch["targets"])
        *d_weights, d_bags_BSD = torch.autograd.grad(loss * loss_scale, [*weights, bags_BSD])
        return loss.detach(), d_weights, d_bags_BSD

    def forward_backward() -> dict[str, Tensor]:
        (batch,) = next(batches)
        loss, d_weights, d_bags_BSD = loss_and_gradients(batch)
        gradients = [*d_weights, d_bags_BSD]
        if scale_left != loss_scale:
            torch._foreach_mul_(gradients, scale_left / loss_scale)
        return {"loss": loss, **dict(zip([f"d_{name}" for name in (*mlps, BAGS)], gradients, strict=True))}

    def training() -> dict[str, Tensor]:
        (batch,) = next(batches)
        loss, d_weights, d_bags_BSD = loss_and_gradients(batch)
        rate = LEARNING_RATE / loss_scale
        with torch.no_grad(), scope("optimizer"):
            torch._foreach_add_(weights, d_weights, alpha=-rate)
        with scope("embed_update"):
            d_rows_BSPD = d_bags_BSD[:, :, None].expand(-1, -1, p.pooling, -1)
            d_tables = torch.sparse_coo_tensor(
                batch["indices"].view(1, -1), d_rows_BSPD.flatten(0, 2), tables_RD.shape, check_invariants=False
            )
            tables_RD.add_(d_tables, alpha=-rate)
        return {"loss": loss}

    if case.mode == "inference":
        step = inference_step("logits", framework.compiled(logits_of, case.compile), batches, ("dense", "indices"))
    else:
        step = forward_backward if case.mode == "forward_backward" else training

    def outputs(result: dict[str, Tensor]) -> Mapping[str, np.ndarray]:
        return {
            name: outputs_last(name, value.cpu().double().numpy()) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    return Workload(step, outputs)


def _put(framework: TorchFramework, batch: Mapping[str, np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return a batch on the device; PyTorch's sparse tensors take 64-bit indices."""
    return {name: framework.put(value, torch.int64 if name == "indices" else dtype) for name, value in batch.items()}
