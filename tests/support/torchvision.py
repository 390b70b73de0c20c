"""The package torchvision, also beside a PyTorch that its build is not for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

OPERATORS = ("nms", "qnms")
"""Operators that importing torchvision expects; they are its own, in C++."""


@cache
def operators() -> Any:
    """Declare the operators, without an implementation, for as long as the library that is returned exists."""
    library = import_module("torch.library").Library("torchvision", "FRAGMENT")
    for name in OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def torchvision_models() -> Any:
    """Return torchvision.models; a test is skipped where it is not installed or cannot be imported.

    The wheels on PyPI are for PyTorch with CUDA. Beside PyTorch for CPUs their own operators cannot be loaded, but no
    model used here needs them.
    """
    pytest.importorskip("torch")
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        try:
            return import_module("torchvision.models")
        except RuntimeError:  # operator torchvision::nms does not exist
            operators()
            return import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")
