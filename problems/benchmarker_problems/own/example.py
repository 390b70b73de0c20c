"""An example of a file to measure, in each framework."""

SOFTMAX = '''"""Softmax over rows, two ways: a file for `benchmarker run {name}`."""

{imports}

# The defaults of `inputs` become options: --n and --m. It may return one array, a tuple, or a dictionary of arguments.
def inputs(n=1024, m=1024{seed}):
    return {drawn}


# What the functions are held to, in float64. Without it, that is the first of them.
def reference(x):
    return {softmax}


# Every other public function or class that is defined here is measured.
def naive(x):
    e = {library}.exp(x - {largest})
    return e / {total}


def {second}(x):
    return {softmax}


# Optional, of options: the FLOPs, the bytes and the samples of a step, and the largest relative error that is right.
def bytes(n, m, itemsize):
    return 2 * n * m * itemsize
'''
"""The file, with what differs between frameworks left open."""
FRAMEWORKS = {
    "torch": {
        "imports": "import torch\n",
        "seed": "",
        "drawn": "torch.randn(n, m)",
        "softmax": "torch.softmax(x, -1)",
        "library": "torch",
        "largest": "x.amax(-1, keepdim=True)",
        "total": "e.sum(-1, keepdim=True)",
        "second": "fused",
    },
    "jax": {
        "imports": "import jax\nimport jax.numpy as jnp\n",
        "seed": ", seed=0",
        "drawn": "jax.random.normal(jax.random.key(seed), (n, m))",
        "softmax": "jax.nn.softmax(x, -1)",
        "library": "jnp",
        "largest": "x.max(-1, keepdims=True)",
        "total": "e.sum(-1, keepdims=True)",
        "second": "fused",
    },
    "numpy": {
        "imports": "import numpy as np\nfrom scipy import special\n",
        "seed": "",
        "drawn": "np.random.standard_normal((n, m))",
        "softmax": "special.softmax(x, -1)",
        "library": "np",
        "largest": "x.max(-1, keepdims=True)",
        "total": "e.sum(-1, keepdims=True)",
        "second": "by_scipy",
    },
}
