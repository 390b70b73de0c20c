"""A decoder like Llama in PyTorch. Shapes: B batch, T sequence, C width of the model, V vocabulary, H heads.

Mixed precision is autocast over fp32 weights. In 16-bit types RMSNorm and softmax accumulate in fp32, and the loss is
fp32.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.attention.torch import Attend, attend
from benchmarker_problems.decoder import RMS_NORM_EPS, Decoder
from benchmarker_problems.generation import torch as generation
from benchmarker_problems.layers.reference import rope_tables
from benchmarker_problems.layers.torch import product, rope
from benchmarker_problems.quantization.torch import UNSUPPORTED, linear
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.torch import plainly, recomputing

SUPPORT = Support(DONE, exclusions=UNSUPPORTED)
"""All precisions, except those without products with quantised weights."""


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection."""

    def __init__(self, problem: Any) -> None:
        super().__init__()
        p = problem
        self.problem = p
        self.norm_1 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.attn_qkv = linear(p.weight_type, p.d_model, sum(p.heads) * p.head_dim, bias=False)
        self.attn_proj = linear(p.weight_type, p.d_model, p.d_model, bias=False)
        self.norm_2 = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)

    def forward(
        self,
        x_BTC: Tensor,
        tables: tuple[Tensor, Tensor],
        bias_TT: Tensor | None,
        attention: Attend | None = None,
    ) -> Tensor:
        """Apply the block, with another attention than that of whole sequences if it is given."""
        p = self.problem
        with scope("norm_1"):
            h_BTC = self.norm_1(x_BTC)
        with scope("attn_qkv"):
            qkv_BTHD = self.attn_qkv(h_BTC).unflatten(-1, (-1, p.head_dim))
        n_head, n_kv_head = p.heads_of(qkv_BTHD.shape[2])
        qk_BTHD, v_BTKD = torch.split(qkv_BTHD, [n_head + n_kv_head, n_kv_head], dim=2)
        with scope("rope"):
            q_BTHD, k_BTKD = torch.split(rope(qk_BTHD, *tables), [n_head, n_kv_head], dim=2)
        attention = attention or partial(attend, impl=p.impl, bias_Tt=bias_TT)
        heads_BTHD = attention(q_BTHD, k_BTKD, v_BTKD)
        with scope("attn_proj"):
            x_BTC = x_BTC + self.attn_proj(heads_BTHD.flatten(2))
        with scope("norm_2"):
            h_BTC = self.norm_2(x_BTC)
        return self.mlp(h_BTC, x_BTC)

    @abstractmethod
    def mlp(self, h_BTC: Tensor, x_BTC: Tensor) -> Tensor:
        """Return the sum of the MLP of the normalised input and the residual."""


class DecoderModel(nn.Module):
    """The whole model."""

    def __init__(self, problem: Decoder, block: Callable[[Any], Block]) -> None:
        super().__init__()
        p = problem
        self.wte = nn.Parameter(torch.empty(p.vocab_size, p.d_model))
        self.run = recomputing if problem.recompute else plainly
        self.h = nn.ModuleList(block(p) for _ in range(p.n_layer))
        self.norm_f = nn.RMSNorm(p.d_model, eps=RMS_NORM_EPS)
        self.lm_head = None if p.tied_head else linear(p.weight_type, p.d_model, p.vocab_size, bias=False)

    def forward(
        self,
        tokens_BT: Tensor,
        tables: tuple[Tensor, Tensor],
        bias_TT: Tensor | None,
        positions_T: Tensor | None = None,
        attentions: Sequence[Attend] | None = None,
    ) -> Tensor:
        """Return the logits of every position, [B, T, V]; with the attention of each block, of the last, [B, V]."""
        with scope("embed"):
            x_BTC = F.embedding(tokens_BT, self.wte)
            if positions_T is not None:
                tables = tables[0][positions_T], tables[1][positions_T]
        for block, attention in zip(self.h, attentions or repeat(None), strict=False):
            x_BTC = self.run(block, x_BTC, tables, bias_TT, attention)
        if attentions:
            x_BTC = x_BTC[:, -1]
        with scope("norm_f"):
            x_BTC = self.norm_f(x_BTC)
        with scope("lm_head"):
            return product(x_BTC, self.wte) if self.lm_head is None else self.lm_head(x_BTC)


Tables = tuple[Tensor, Tensor]
"""Cosine and sine of every position, [T, 1, D/2]."""


def loaded(
    framework: TorchFramework, case: Case, data: Data, problem: Decoder, block: Callable[[Any], Block]
) -> tuple[DecoderModel, tuple[Tables]]:
    """Return the model with the given weights and its rotary angles; see `generation.torch.Load`."""
    p = problem
    model: DecoderModel = generation.load(framework, case, data, lambda: DecoderModel(p, block))
    cos_Td, sin_Td = (
        framework.put(table[:, None], DTYPES[PRECISIONS[case.precision].compute])
        for table in rope_tables(p.seq_len, p.head_dim, p.rope_theta)
    )
    return model, ((cos_Td, sin_Td),)
