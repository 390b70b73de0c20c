"""Softmax over rows, two ways: a file for `benchmarker run softmax_jax.py`."""

import jax
import jax.numpy as jnp


# The defaults of `inputs` become options: --n and --m. It may return one array, a tuple, or a dictionary of arguments.
def inputs(n=1024, m=1024, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, m))


# What the functions are held to, in float64. Without it, that is the first of them.
def reference(x):
    return jax.nn.softmax(x, -1)


# Every other public function or class that is defined here is measured.
def naive(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fused(x):
    return jax.nn.softmax(x, -1)


# Optional, of options: the FLOPs, the bytes and the samples of a step, and the largest relative error that is right.
def bytes(n, m, itemsize):
    return 2 * n * m * itemsize
