"""Cross entropy of logits and labels, written out and by PyTorch."""

import torch
from torch.nn import functional


def inputs(n=512, classes=4096):
    return torch.randn(n, classes), torch.randint(classes, (n,))


def reference(logits, labels):
    return functional.cross_entropy(logits, labels)


def naive(logits, labels):
    probabilities = logits.softmax(-1)
    return -probabilities.gather(-1, labels[:, None]).log().mean()


def fused(logits, labels):
    return functional.cross_entropy(logits, labels)


def bytes(n, classes, itemsize):
    return n * classes * itemsize + 8 * n
