"""Causal attention, written out and by PyTorch; arrays are [batch, tokens, heads, width]."""

import torch
from torch.nn import functional


def inputs(batch=1, tokens=256, heads=8, width=64):
    q, k, v = torch.randn(3, batch, tokens, heads, width)
    return q, k, v


def reference(q, k, v):
    return naive(q, k, v)


def naive(q, k, v):
    scores = torch.einsum("bqhw,bkhw->bhqk", q, k) / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.einsum("bhqk,bkhw->bqhw", scores.masked_fill(later, float("-inf")).softmax(-1), v)


def fused(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def bytes(batch, tokens, heads, width, itemsize):
    return 4 * batch * tokens * heads * width * itemsize
