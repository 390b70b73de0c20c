"""A mixture of experts in NumPy with a handwritten backward pass, in the type of its weights.

Shapes: B batch, T sequence, C width of the model, F width within an expert, N tokens of a batch, E experts, K experts
of a token, R rows of an expert.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.layers.layer import chain
from benchmarker_problems.layers.model import swiglu_mlp
from benchmarker_problems.layers.reference import (
    Gradients,
    Pullback,
    Weights,
    linear,
    prefixed,
    recomputed,
    select,
)

if TYPE_CHECKING:
    from benchmarker_problems.moe import Moe


def mixture(x_BTC: np.ndarray, weights: Weights, problem: Moe) -> tuple[np.ndarray, Pullback]:
    """Return the sum of each token's experts, weighted by the softmax of their scores; a dropped expert adds nothing.

    One expert after the other takes the rows that are sent to it.
    """
    x_NC = x_BTC.reshape(-1, problem.d_model)
    scores_NE, router_pullback = linear(x_NC, select(weights, "moe_router"))
    chosen_NK = np.argsort(-scores_NE, axis=1, kind="stable")[:, : problem.top_k]
    scores_NK = np.take_along_axis(scores_NE, chosen_NK, axis=1)
    gates_NK = np.exp(scores_NK - scores_NK[:, :1])
    gates_NK /= gates_NK.sum(axis=1, keepdims=True)
    kept_NK = within_capacity(chosen_NK, problem)
    y_NC = np.zeros_like(x_NC)
    experts = []
    expert_layers = swiglu_mlp(problem.d_model, problem.d_ff)
    for expert in range(problem.n_expert):
        sent = np.nonzero((chosen_NK == expert) & kept_NK)
        kernels = {f"mlp_{name}.kernel": weights[f"moe_{name}.kernel"][expert] for name in ("fc", "proj")}
        y_RC, expert_pullback = recomputed(partial(chain, expert_layers, weights=kernels))(x_NC[sent[0]])
        y_NC[sent[0]] += gates_NK[sent][:, None] * y_RC
        experts.append((sent, y_RC, expert_pullback))

    def pullback(d_y_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_y_NC = d_y_BTC.reshape(x_NC.shape)
        d_x_NC, d_gates_NK = np.zeros_like(x_NC), np.zeros_like(gates_NK)
        d_fc, d_proj = [], []
        for sent, y_RC, expert_pullback in experts:
            d_y_RC = d_y_NC[sent[0]]
            d_gates_NK[sent] = (d_y_RC * y_RC).sum(axis=1)
            d_x_RC, d_kernels = expert_pullback(gates_NK[sent][:, None] * d_y_RC)
            d_x_NC[sent[0]] += d_x_RC
            d_fc.append(d_kernels["mlp_fc.kernel"])
            d_proj.append(d_kernels["mlp_proj.kernel"])
        d_scores_NK = gates_NK * (d_gates_NK - (gates_NK * d_gates_NK).sum(axis=1, keepdims=True))
        d_scores_NE = np.zeros_like(scores_NE)
        np.put_along_axis(d_scores_NE, chosen_NK, d_scores_NK, axis=1)
        d_routed_NC, d_router = router_pullback(d_scores_NE)
        gradients = {"moe_fc.kernel": np.stack(d_fc), "moe_proj.kernel": np.stack(d_proj)}
        return (d_x_NC + d_routed_NC).reshape(x_BTC.shape), prefixed("moe_router", d_router) | gradients

    return y_NC.reshape(x_BTC.shape), pullback


def within_capacity(chosen_NK: np.ndarray, problem: Moe) -> np.ndarray:
    """Return which choices [N, K] are kept: an expert takes the first of each sequence that fill its slots."""
    if problem.dispatch != "capacity":
        return np.ones(chosen_NK.shape, bool)
    chosen_BTKE = chosen_NK.reshape(-1, problem.seq_len, problem.top_k)[..., None] == np.arange(problem.n_expert)
    before_BTE = chosen_BTKE.any(axis=2).cumsum(axis=1) - 1
    return np.take_along_axis(before_BTE.reshape(len(chosen_NK), -1), chosen_NK, axis=1) < problem.capacity
