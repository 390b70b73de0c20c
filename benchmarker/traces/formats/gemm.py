"""Matrix products: C[M, N] = A[M, K] · B[K, N], in a batch of any number."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r"(?P<dtype>\S+) m=(?P<m>\d+) n=(?P<n>\d+) k=(?P<k>\d+) batch=(?P<batch>\d+) (?P<layout>[NT-]{2})")


class Gemm(NamedTuple):
    """One product: sizes, the type of its factors, and how these lie in memory.

    `layout` has a letter each for A and B: N if the elements of a row are adjacent, T if those of a column are, as if
    the operand were stored transposed, `-` if that is unknown or neither. cuBLAS, which counts by columns, computes
    Cᵀ = Bᵀ · Aᵀ, so its kernels have the same letters in reverse order.
    """

    dtype: str
    m: int
    n: int
    k: int
    batch: int
    layout: str

    def __str__(self) -> str:
        return f"{self.dtype} m={self.m} n={self.n} k={self.k} batch={self.batch} {self.layout}"


def parse(text: str) -> Gemm | None:
    """Return the product that a text of the event table describes, None if it is no such text."""
    match = _TEXT.fullmatch(text)
    if not match:
        return None
    found = match.groupdict()
    m, n, k, batch = (int(found[name]) for name in ("m", "n", "k", "batch"))
    return Gemm(found["dtype"], m, n, k, batch, found["layout"])


def dtype(left: str, right: str) -> str:
    """The type of both factors, or of each if they differ."""
    return left if left == right else f"{left}/{right}"
