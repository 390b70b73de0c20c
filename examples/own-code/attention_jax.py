"""Causal attention, written out and by JAX; arrays are [batch, tokens, heads, width]."""

import jax
import jax.numpy as jnp


def inputs(batch=1, tokens=256, heads=8, width=64, seed=0):
    q, k, v = jax.random.normal(jax.random.key(seed), (3, batch, tokens, heads, width))
    return q, k, v


def reference(q, k, v):
    return naive(q, k, v)


def naive(q, k, v):
    scores = jnp.einsum("bqhw,bkhw->bhqk", q, k) / q.shape[-1] ** 0.5
    visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhw->bqhw", jax.nn.softmax(jnp.where(visible, scores, -jnp.inf)), v)


def library(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def bytes(batch, tokens, heads, width, itemsize):
    return 4 * batch * tokens * heads * width * itemsize
