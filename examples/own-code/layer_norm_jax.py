"""Layer norm over rows, reading them twice and once."""

import jax
import jax.numpy as jnp


def inputs(n=1024, m=1024, seed=0):
    x, weight, bias = jax.random.split(jax.random.key(seed), 3)
    return jax.random.normal(x, (n, m)), jax.random.normal(weight, (m,)), jax.random.normal(bias, (m,))


def reference(x, weight, bias):
    return jax.nn.standardize(x, epsilon=1e-5) * weight + bias


def two_pass(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def one_pass(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x).mean(-1, keepdims=True) - jnp.square(mean)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight + bias


def bytes(n, m, itemsize):
    return 2 * (n * m + m) * itemsize
