"""Smooths series of numbers, and shortens them."""

import itertools

import numpy as np


def moving_mean(x, width):
    """Return the means of `width` successive numbers, each from its first one on."""
    sums = np.cumsum(np.concatenate([[0.0], x]))
    return (sums[width:] - sums[:-width]) / width


def moving_median(x, width):
    """Return the medians of `width` successive numbers, each from its first one on."""
    return np.median(np.lib.stride_tricks.sliding_window_view(x, width), axis=-1)


def runs(letters):
    """Return each letter with how often it follows itself: `aab` is a twice, then b."""
    return [(letter, len(list(several))) for letter, several in itertools.groupby(letters)]
