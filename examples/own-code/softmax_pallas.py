"""Softmax over rows by a kernel of Pallas beside XLA's: a file for `benchmarker run softmax_pallas.py`.

On a CPU, JAX interprets the kernel, which is slow: the check is of use there, the time is not.
"""

import jax
from jax.experimental import pallas as pl


def inputs(n=1024, m=1024, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, m))


def reference(x):
    return jax.nn.softmax(x, -1)


def _softmax_of_a_row(x_ref, result_ref):
    x = x_ref[...].astype(jax.numpy.promote_types(x_ref.dtype, "float32"))
    e = jax.numpy.exp(x - x.max(-1, keepdims=True))
    result_ref[...] = (e / e.sum(-1, keepdims=True)).astype(result_ref.dtype)


def by_pallas(x):
    n, m = x.shape
    row = pl.BlockSpec((1, m), lambda i: (i, 0))
    kernel = pl.pallas_call(
        _softmax_of_a_row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(n,),
        in_specs=[row],
        out_specs=row,
        interpret=jax.default_backend() == "cpu",
    )
    return kernel(x)


def by_xla(x):
    return jax.nn.softmax(x, -1)


# No framework counts what a kernel does. An element is compared, subtracted, raised, added and divided.
def flops(n, m):
    return 5 * n * m


def bytes(n, m, itemsize):
    return 2 * n * m * itemsize
