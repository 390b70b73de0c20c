"""The package torchvision, also beside a PyTorch that its build is not for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest


def torchvision_models() -> Any:
    """Return torchvision.models; a test is skipped where it is not installed or cannot be imported."""
    pytest.importorskip("torch")
    import_module("benchmarker_problems.libraries.torch")  # it makes torchvision importable
    try:
        return import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")
