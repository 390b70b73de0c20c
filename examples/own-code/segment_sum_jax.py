"""Sums of the rows of each segment, by adding to places and as a product."""

import jax


def inputs(n=4096, m=64, segments=128, seed=0):
    x, segment = jax.random.split(jax.random.key(seed))
    return jax.random.normal(x, (n, m)), jax.random.randint(segment, (n,), 0, segments), segments


def reference(x, segment, segments):
    return added(x, segment, segments)


def added(x, segment, segments):
    return jax.ops.segment_sum(x, segment, segments)


def product(x, segment, segments):
    return jax.nn.one_hot(segment, segments, dtype=x.dtype).T @ x


def bytes(n, m, segments, itemsize):
    return (n + segments) * m * itemsize + 4 * n
