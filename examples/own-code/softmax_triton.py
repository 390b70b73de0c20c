"""Softmax over rows by a kernel of Triton beside PyTorch's: a file for `benchmarker run softmax_triton.py`.

It needs a GPU. On a CPU, Triton can only interpret kernels, if the variable TRITON_INTERPRET is 1.
"""

import torch
import triton
import triton.language as tl


def inputs(n=1024, m=1024):
    return torch.randn(n, m)


def reference(x):
    return torch.softmax(x, -1)


@triton.jit
def _softmax_of_a_row(x_ptr, result_ptr, m, BLOCK: tl.constexpr):
    start = tl.program_id(0) * m
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + column, mask=column < m, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(result_ptr + start + column, e / tl.sum(e, 0), mask=column < m)


def by_triton(x):
    n, m = x.shape
    result = torch.empty_like(x)
    _softmax_of_a_row[(n,)](x, result, m, BLOCK=triton.next_power_of_2(m))
    return result


def by_torch(x):
    return torch.softmax(x, -1)


# No framework counts what a kernel does. An element is compared, subtracted, raised, added and divided.
def flops(n, m):
    return 5 * n * m


def bytes(n, m, itemsize):
    return 2 * n * m * itemsize
