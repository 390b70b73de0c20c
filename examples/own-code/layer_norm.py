"""Layer norm over rows, written out and by PyTorch."""

import torch
from torch.nn import functional


def inputs(n=1024, m=1024):
    return torch.randn(n, m), torch.randn(m), torch.randn(m)


def reference(x, weight, bias):
    return functional.layer_norm(x, weight.shape, weight, bias)


def naive(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight + bias


def fused(x, weight, bias):
    return functional.layer_norm(x, weight.shape, weight, bias)


def bytes(n, m, itemsize):
    return 2 * (n * m + m) * itemsize
