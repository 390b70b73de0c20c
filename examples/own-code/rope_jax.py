"""Rotary position embedding of neighbouring pairs, in real and in complex numbers."""

import jax
import jax.numpy as jnp


def inputs(batch=1, tokens=512, heads=8, width=64, seed=0):
    frequency = 10000.0 ** -(jnp.arange(0, width, 2) / width)
    x = jax.random.normal(jax.random.key(seed), (batch, tokens, heads, width))
    return x, jnp.outer(jnp.arange(tokens), frequency)[:, None]


def reference(x, angle):
    return real(x, angle)


def real(x, angle):
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack((even * cos - odd * sin, even * sin + odd * cos), -1).reshape(x.shape)


def complex_product(x, angle):
    turned = jax.lax.complex(x[..., 0::2], x[..., 1::2]) * jnp.exp(1j * angle)
    return jnp.stack((turned.real, turned.imag), -1).reshape(x.shape)


def bytes(batch, tokens, heads, width, itemsize):
    return (2 * batch * heads * width + width // 2) * tokens * itemsize
