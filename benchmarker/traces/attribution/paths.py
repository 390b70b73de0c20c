"""Paths of XLA's instructions: `jit(f)/transpose(jvp(Model))/h.0/attn_q_k/dot_general`.

Each token is a scope, a transformation around scopes, a jitted function, or, at the end, the primitive.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_OPENING = re.compile(r"([\w.\-<>]+)\(")
_CALLED = {"jit", "pjit", "xla_call", "core_call", "closed_call", "custom_jvp_call", "custom_vjp_call", "named_call"}
"""Wrappers around a function's name; such a name is not a scope."""
_NOT_SCOPES = {
    "while",
    "body",
    "cond",
    "branch",
    "closed_call",
    "remat",
    "checkpoint",
    "rematted_computation",
    "shard_map",
}
_LOOPS = {"while"}
_REMAT = {"rematted_computation", "remat2"}


@dataclass(frozen=True, slots=True)
class ScopePath:
    """Where an instruction belongs: the scopes around it, outermost first, and its phase.

    The first `outside` scopes are around the innermost loop: they are not entered once for each iteration.
    """

    scopes: tuple[str, ...]
    phase: str
    outside: int = 0

    def is_in_loop_of(self, counted: str) -> bool:
        """Whether there is a loop within the scope that counts, so that the instruction runs more often than it."""
        return counted in self.scopes and len(self.scopes) - self.scopes[::-1].index(counted) <= self.outside


def scope_path(path: str) -> ScopePath:
    """The scopes and the phase that a path encodes; the primitive at its end is left out."""
    scopes: list[str] = []
    backward = remat = False
    outside = 0
    tokens = _tokens(path)
    for number, wrapped in enumerate(tokens):
        start, end, called = 0, len(wrapped), False
        while wrapped[end - 1 : end] == ")" and (match := _OPENING.match(wrapped, start, end)):
            backward = backward or match[1] == "transpose"
            remat = remat or match[1] in _REMAT
            called = called or match[1] in _CALLED
            start, end = match.end(), end - 1
        token = wrapped[start:end]
        remat = remat or token in _REMAT
        if token in _LOOPS:
            outside = len(scopes)
        last = number == len(tokens) - 1
        # The backward pass of a checkpoint repeats the scopes around it: transpose(jvp(Model))/jvp(Model)/checkpoint.
        repeated = start > 0 and scopes[-1:] == [token]
        is_scope = token not in _NOT_SCOPES and not token.startswith("branch_")
        if token and is_scope and not called and not last and not repeated:
            scopes.append(token)
    return ScopePath(tuple(scopes), "remat" if remat else "backward" if backward else "forward", outside)


def _tokens(path: str) -> list[str]:
    """Split a path at the slashes outside parentheses."""
    tokens, depth, start = [], 0, 0
    for index, char in enumerate(path):
        depth = max(0, depth + (char == "(") - (char == ")"))
        if char == "/" and depth == 0:
            tokens.append(path[start:index])
            start = index + 1
    return [*tokens, path[start:]]


def leaf(scopes: tuple[str, ...], known: Collection[str]) -> str:
    """The scope that counts: the innermost, or if `known` has names, the innermost of these; empty if there is none."""
    if not known:
        return scopes[-1] if scopes else ""
    return next((scope for scope in reversed(scopes) if scope in known), "")


def to_leaf(scopes: tuple[str, ...], counted: str) -> str:
    """The path from the outermost scope to the one that counts."""
    if not counted:
        return "/".join(scopes)
    last = len(scopes) - scopes[::-1].index(counted)
    return "/".join(scopes[:last])
