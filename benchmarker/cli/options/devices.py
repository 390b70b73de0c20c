"""Options that define how many devices compute together: one number, or lists that make several cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import click

from benchmarker.api.case import Parallel
from benchmarker.cli.options.types import Choice, Integer
from benchmarker.planning.scaling import ALL, Scaling


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Numbers, each once: `1,2,4`; where it `has_all`, also `all`, which is ALL."""

    name = "numbers"

    def __init__(self, has_all: bool = False) -> None:
        self.has_all = has_all

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        one = Integer(min=1)
        words = [word.strip() for word in value.split(",")]
        return tuple(
            dict.fromkeys(ALL if self.has_all and word == "all" else one.convert(word, param, ctx) for word in words)
        )


class _Choices(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Some of the given words, each once: `strong`, `weak` or `strong,weak`."""

    name = "choices"

    def __init__(self, words: Sequence[str]) -> None:
        self.one = Choice(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the words."""
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self.one.convert(word.strip(), param, ctx) for word in value.split(",")))


_STRATEGIES = [each for each in get_args(Parallel) if each != "none"]
_DIVIDED = (
    "How several devices share a training step: data parallel (dp), fully sharded data parallel (fsdp) or tensor "
    "parallel (tp). [default: dp]"
)
SEVERAL_DEVICES = (
    click.option(
        "--devices",
        type=Numbers(has_all=True),
        metavar="N[,N...]|all",
        default="1",
        show_default=True,
        help="Numbers of devices that compute together; a CPU's cores are split into N virtual devices.",
    ),
    click.option(
        "--parallel",
        "parallels",
        type=_Choices(_STRATEGIES),
        metavar="STRATEGY[,STRATEGY...]",
        help=_DIVIDED,
    ),
    click.option(
        "--scaling",
        "scalings",
        type=_Choices(get_args(Scaling)),
        metavar="KIND[,KIND]",
        default="strong",
        show_default=True,
        help="strong: the same total work on more devices; weak: the same work per device.",
    ),
)
