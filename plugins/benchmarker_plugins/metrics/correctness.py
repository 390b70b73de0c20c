"""Correctness: the deviation of the outputs from the float64 reference, at the small size of the check."""

from collections.abc import Mapping
from math import log2

from benchmarker import Metric, Record, hookimpl

MOST_BITS = 53.0
"""Bits of the reference: an error that it cannot show is one in the last of them."""


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the largest errors of any output and of any of its elements, and how many bits of the latter are right.

    `error` is relative in the 2-norm, `componentwise_error` is |Ĉ − C| ÷ (|A|·|B|), and `effective_bits` are −log₂ of
    that: from 0, if no bit is right, to the 53 of the reference.
    """
    check = record.check
    reason = None if check else record.reasons.get("check", "not checked")
    by_element = check.componentwise if check else None
    no_elements = None if by_element else reason or "its outputs are not sums of products, as those of gemm are"
    bits = min(max(0.0, -log2(by_element.error or 2.0**-MOST_BITS)), MOST_BITS) if by_element else None
    return {
        "error": Metric(check.error if check else None, "1", "lower", reason),
        "componentwise_error": Metric(by_element.error if by_element else None, "1", "lower", no_elements),
        "effective_bits": Metric(bits, "1", "higher", no_elements),
    }
