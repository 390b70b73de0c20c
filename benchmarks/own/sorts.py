"""Honest functions of NumPy and of Python alone, whose time depends on what they sort."""

import numpy as np


def inputs(n=4096):
    return np.random.standard_normal(n)


def reference(x):
    return np.sort(x)


def by_numpy(x):
    return np.sort(x)


def by_merging(x):
    return np.sort(x, kind="stable")


def by_python(x):
    return np.array(sorted(x.tolist()), x.dtype)
