"""Softmax over rows, two ways: a file for `benchmarker run softmax.py`."""

import torch


# The defaults of `inputs` become options: --n and --m. It may return one array, a tuple, or a dictionary of arguments.
def inputs(n=1024, m=1024):
    return torch.randn(n, m)


# What the functions are held to, in float64. Without it, that is the first of them.
def reference(x):
    return torch.softmax(x, -1)


# Every other public function or class that is defined here is measured.
def naive(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def fused(x):
    return torch.softmax(x, -1)


# Optional, of options: the FLOPs, the bytes and the samples of a step, and the largest relative error that is right.
def bytes(n, m, itemsize):
    return 2 * n * m * itemsize
