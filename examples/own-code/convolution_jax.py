"""Causal convolution of long signals with a filter of the same length, by FFT and directly."""

import jax
import jax.numpy as jnp


def inputs(batch=8, n=2048, seed=0):
    x, taps = jax.random.split(jax.random.key(seed))
    return jax.random.normal(x, (batch, n)), jax.random.normal(taps, (n,))


def reference(x, taps):
    return direct(x, taps)


def by_fft(x, taps):
    length = 2 * x.shape[-1]
    product = jnp.fft.rfft(x, length) * jnp.fft.rfft(taps, length)
    return jnp.fft.irfft(product, length)[:, : x.shape[-1]]


def direct(x, taps):
    return jax.vmap(lambda row: jnp.convolve(row, taps)[: row.shape[0]])(x)


def bytes(batch, n, itemsize):
    return (2 * batch + 1) * n * itemsize
