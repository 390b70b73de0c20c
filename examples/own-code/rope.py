"""Rotary position embedding of neighbouring pairs, in real and in complex numbers."""

import torch


def inputs(batch=1, tokens=512, heads=8, width=64):
    frequency = 10000 ** -(torch.arange(0, width, 2) / width)
    return torch.randn(batch, tokens, heads, width), torch.outer(torch.arange(tokens), frequency)[:, None]


def reference(x, angle):
    return real(x, angle)


def real(x, angle):
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def complex_product(x, angle):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def bytes(batch, tokens, heads, width, itemsize):
    return (2 * batch * heads * width + width // 2) * tokens * itemsize
