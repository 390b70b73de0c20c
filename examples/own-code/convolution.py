"""Causal convolution of long signals with a filter of the same length, by FFT and directly."""

import torch
from torch.nn import functional


def inputs(batch=8, n=2048):
    return torch.randn(batch, n), torch.randn(n)


def reference(x, taps):
    return direct(x, taps)


def by_fft(x, taps):
    length = 2 * x.shape[-1]
    product = torch.fft.rfft(x, length) * torch.fft.rfft(taps, length)
    return torch.fft.irfft(product, length)[:, : x.shape[-1]]


def direct(x, taps):
    padded = functional.pad(x, (x.shape[-1] - 1, 0))
    return functional.conv1d(padded[:, None], taps.flip(0)[None, None])[:, 0]


def bytes(batch, n, itemsize):
    return (2 * batch + 1) * n * itemsize
