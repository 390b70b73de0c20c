"""Integers as records hold them: with bounds, so that one that no measurement gives is refused where it is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

LARGEST = 2**63 - 1
"""Largest integer that tables and other readers of JSON can hold."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
