"""Llama in PyTorch. Shapes: B batch, T sequence, C width of the model, F width within the MLP."""

from dataclasses import replace
from functools import partial

from torch import Tensor

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework, scope
from benchmarker_problems import decoder
from benchmarker_problems.decoder.torch import SUPPORT, loaded
from benchmarker_problems.generation import torch as generation
from benchmarker_problems.layers.torch import swiglu
from benchmarker_problems.llama import Llama
from benchmarker_problems.parallel import STRATEGIES
from benchmarker_problems.parallel.torch import NO_LOSS_SCALING
from benchmarker_problems.quantization.torch import linear


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those without products with quantised weights, or without loss scaling."""
    return replace(SUPPORT, exclusions=(*SUPPORT.exclusions, *NO_LOSS_SCALING), parallel=STRATEGIES)


class Block(decoder.torch.Block):
    """Attention and MLP."""

    def __init__(self, problem: Llama) -> None:
        super().__init__(problem)
        self.mlp_fc = linear(problem.weight_type, problem.d_model, 2 * problem.d_ff, bias=False)
        self.mlp_proj = linear(problem.weight_type, problem.d_ff, problem.d_model, bias=False)

    def mlp(self, h_BTC: Tensor, x_BTC: Tensor) -> Tensor:
        """Return the sum of the MLP of the normalised input and the residual."""
        with scope("mlp_fc"):
            gate_up_BTE = self.mlp_fc(h_BTC)
        with scope("mlp_swiglu"):
            inner_BTF = swiglu(gate_up_BTE)
        with scope("mlp_proj"):
            mlp_BTC: Tensor = self.mlp_proj(inner_BTF)
            return x_BTC + mlp_BTC


@hookimpl
def build_workload(framework: TorchFramework, problem: Llama, case: Case, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    return generation.build(framework, case, problem, data, partial(loaded, problem=problem, block=Block))


@hookimpl
def build_engine(framework: TorchFramework, case: Case, problem: Llama, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(loaded, problem=problem, block=Block))
