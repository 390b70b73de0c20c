"""The k largest of each row, selected and by sorting all."""

import jax
import jax.numpy as jnp


def inputs(n=256, m=4096, k=32, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, m)), k


def reference(x, k):
    return by_sorting(x, k)


def selected(x, k):
    return jax.lax.top_k(x, k)[0]


def by_sorting(x, k):
    return jnp.sort(x, descending=True)[:, :k]


def bytes(n, m, k, itemsize):
    return n * (m + k) * itemsize
