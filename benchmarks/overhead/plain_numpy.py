"""Compare each NumPy implementation of this project with plain NumPy and SciPy for the same work.

In each of several fresh processes, steps of both alternate in random order, on one thread or on two; their results are
compared first. Thread pools that disturb each other, copies and wrong types show as a ratio above 1.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from itertools import cycle
from typing import Any

import click
import numpy as np
import plain_models
import scipy.fft
import scipy.linalg
import scipy.sparse
import threadpoolctl
from duet import ratio
from numpy.lib.stride_tricks import sliding_window_view
from peer import alternate

from benchmarker import open_bench
from benchmarker.hooks import registry

THREADS = (1, 2)
LARGEST_RATIO = 1.1
CLOSE = 1e-3
"""Largest difference of the results, as a share of the largest element."""
Arrays = Mapping[str, np.ndarray]
Plain = Callable[[Mapping[str, Any], Arrays, Any], np.ndarray]
"""From the weights, a batch and the parameters to the result."""

SOLVER = {"precision": "fp64"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm": ("gemm", {}),
    "gemm NT": ("gemm", {"transpose_b": True}),
    "stream": ("stream", {"op": "copy"}),
    "stencil": ("stencil", {"nx": 160, "ny": 160, "nz": 160}),
    "fft": ("fft", {}),
    "spmv": ("spmv", SOLVER),
    "cg": ("cg", {"iterations": 10, **SOLVER}),
    "cg fp32": ("cg", {"iterations": 10}),
    "lu": ("lu", SOLVER),
    "lu factor=fp32": ("lu", {"factor": "fp32", **SOLVER}),
    "conv": ("conv", {}),
    "attention": ("attention", {}),
    "mlp": ("mlp", {}),
    "mlp by output": ("mlp", {"by_output": True}),
    "lstm": ("lstm", {}),
    "dlrm": ("dlrm", {}),
    "gpt2": ("gpt2", {"n_layer": 4}),
    "bert": ("bert", {"n_layer": 4}),
    "vit": ("vit", {"n_layer": 4}),
    "llama": ("llama", {"n_layer": 4}),
    "moe": ("moe", {"n_layer": 4, "dispatch": "grouped"}),
    "dit": ("dit", {"n_layer": 4}),
}
"""The problem and the options of each case."""


@click.command()
@click.option("--cases", default=",".join(CASES), help="Names of the cases, separated by commas.  [default: all]")
@click.option(
    "--processes",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Processes of each case and number of threads.",
)
@click.option("--seconds", default=3.0, show_default=True, help="Time for the pairs of a process.")
@click.option("--process", hidden=True, nargs=3, help="Run as one of the processes: case, threads, seed.")
def main(cases: str, processes: int, seconds: float, process: tuple[str, str, str] | None) -> None:
    """Print the time of a step divided by that of plain NumPy, on one thread and on two."""
    if process:
        print(one_process(process[0], int(process[1]), int(process[2]), seconds))
        return
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"this project / plain NumPy, 95% interval over the pairs of {processes} processes; {load}")
    print(f"{'case':14} {'1 thread':>10}   {'ratio':25} {'2 threads':>10}   {'ratio':25} 2 threads / 1")
    implemented = {address.split(".")[1] for address in registry.registered("workload") if address.endswith(".numpy")}
    if missing := implemented.difference(PLAIN):
        sys.exit(f"without a plain step: {', '.join(missing)}")
    slow = []
    for name in cases.split(","):
        found = {threads: [child(name, threads, seed, seconds) for seed in range(processes)] for threads in THREADS}
        times = [statistics.median(each["ours_ms"] for each in found[threads]) for threads in THREADS]
        ratios = [ratio([log for each in found[threads] for log in each["logs"]]) for threads in THREADS]
        cells = "".join(f" {time_ms:7.2f} ms   {value!s:25}" for time_ms, value in zip(times, ratios, strict=True))
        print(f"{name:14}{cells} {times[1] / times[0]:.2f}", flush=True)
        slow += [name] * (max(each.value for each in ratios) > LARGEST_RATIO)
    if slow:
        sys.exit(f"more than {LARGEST_RATIO:g} times as long as plain NumPy: {', '.join(slow)}")


def child(name: str, threads: int, seed: int, seconds: float) -> dict[str, Any]:
    """Run one process, and return what it prints."""
    words = [sys.executable, __file__, f"--seconds={seconds}", "--process", name, str(threads), str(seed)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one_process(name: str, threads: int, seed: int, seconds: float) -> str:
    """Compare the results of both, then their times; return the log ratios and the times as JSON."""
    problem, options = CASES[name]
    bench = open_bench(problem, "numpy", "cpu", **{"precision": "fp32", **options})
    threadpoolctl.threadpool_limits(threads, user_api="blas")
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    batches, function = cycle(data.batches), PLAIN[problem]
    weights = {"matrix": matrix_of(data.weights)} if "row_starts" in data.weights else data.weights

    def step() -> np.ndarray:
        return function(weights, next(batches), bench.problem)

    with scipy.fft.set_workers(threads):
        (ours, *_), theirs = workload.outputs(workload.step()).values(), step()
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        if ours.shape != theirs.shape or not error < CLOSE:
            sys.exit(f"{name}: the results differ by {error:.2g} of the largest element")
        return alternate(workload.step, step, seconds, seed)


def gemm(_: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the product; a transposed matrix is a view."""
    a = batch["a"].T if params.transpose_a else batch["a"]
    product: np.ndarray = a @ (batch["b"].T if params.transpose_b else batch["b"])
    return product


@cache
def buffer(n: int) -> np.ndarray:
    """Return the array to which every step copies."""
    return np.empty(n, np.float32)


def stream(_: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Copy an array to another."""
    to = buffer(params.n)
    to[:] = batch["b"]
    return to


def stencil(_: Arrays, batch: Arrays, __: Any) -> np.ndarray:
    """Return one sweep over the inner points."""
    u, at = batch["u"], slice(1, -1)
    neighbours = u[:-2, at, at] + u[2:, at, at] + u[at, :-2, at] + u[at, 2:, at] + u[at, at, :-2] + u[at, at, 2:]
    v = u.copy()
    v[at, at, at] = 0.4 * u[at, at, at] + 0.1 * neighbours
    return v


def fft(_: Arrays, batch: Arrays, __: Any) -> np.ndarray:
    """Return the transform, on as many threads as SciPy is set to."""
    y: np.ndarray = scipy.fft.fftn(batch["x"], axes=(1, 2, 3))
    return y


def matrix_of(weights: Arrays) -> scipy.sparse.csr_array:
    """Return the sparse matrix."""
    return scipy.sparse.csr_array((weights["values"], weights["columns"], weights["row_starts"]))


def spmv(weights: Mapping[str, Any], batch: Arrays, _: Any) -> np.ndarray:
    """Return the product with a vector."""
    y: np.ndarray = weights["matrix"] @ batch["x"]
    return y


def cg(weights: Mapping[str, Any], batch: Arrays, params: Any) -> np.ndarray:
    """Return x after some iterations of SciPy's CG."""
    x: np.ndarray
    x, _ = scipy.sparse.linalg.cg(weights["matrix"], batch["b"], rtol=0, atol=0, maxiter=params.iterations)
    return x


def lu(weights: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the solution; refined, by factors in fp32 and residuals in fp64."""
    a, b = weights["a"], batch["b"]
    x: np.ndarray
    if params.factor == "same":
        x = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b)
        return x
    factors = scipy.linalg.lu_factor(a.astype(np.float32))
    x = scipy.linalg.lu_solve(factors, b.astype(np.float32)).astype(np.float64)
    for _ in range(2):
        x += scipy.linalg.lu_solve(factors, (b - a @ x).astype(np.float32))
    return x


def conv(_: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the convolution of images with the channels last, without stride, dilation and groups."""
    edge, size = params.padding, params.kernel_size
    padded = np.pad(batch["x"], ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    windows = sliding_window_view(padded, (size, size), axis=(1, 2))
    return np.tensordot(windows, batch["w"], axes=((4, 5, 3), (0, 1, 2)))


def attention(_: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return causal attention."""
    return plain_models.attend(batch["q"], batch["k"], batch["v"], plain_models.causal(params.seq_len))


def mlp(weights: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the last of a chain of layers."""
    y = batch["x"]
    for name in params.names:
        y = np.tanh(y @ weights[name])
    return y


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(−x))."""
    y: np.ndarray = 1 / (1 + np.exp(-x))
    return y


def lstm(weights: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the outputs of the last layer."""
    outputs = batch["x"]
    for layer in range(params.layers):
        projected = outputs @ weights[f"{layer}.w_x"] + weights[f"{layer}.b"]
        h = c = np.zeros((params.batch_size, params.hidden_size), outputs.dtype)
        states = []
        for at in projected:
            i, f, g, o = np.split(at + h @ weights[f"{layer}.w_h"], 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
        outputs = np.stack(states)
    return outputs


def dlrm(weights: Arrays, batch: Arrays, params: Any) -> np.ndarray:
    """Return the logits."""

    def layers(x: np.ndarray, name: str, count: int) -> np.ndarray:
        for number in range(count):
            x = plain_models.linear(np.maximum(x, 0) if number else x, weights, f"{name}.{number}")
        return x

    bags = weights["embeddings"][batch["indices"]].sum(axis=2)
    bottom = np.maximum(layers(batch["dense"].astype(np.float32), "bottom", len(params.bottom_widths) - 1), 0)
    vectors = np.concatenate([bottom[:, None], bags], axis=1)
    products = vectors @ vectors.swapaxes(1, 2)
    pairs = products[:, *np.tril_indices(vectors.shape[1], -1)]
    return layers(np.concatenate([bottom, pairs], axis=1), "top", len(params.top_widths) - 1)[:, 0]


PLAIN: dict[str, Plain] = {
    "gemm": gemm,
    "stream": stream,
    "stencil": stencil,
    "fft": fft,
    "spmv": spmv,
    "cg": cg,
    "lu": lu,
    "conv": conv,
    "attention": attention,
    "mlp": mlp,
    "lstm": lstm,
    "dlrm": dlrm,
    "gpt2": plain_models.gpt2,
    "bert": plain_models.bert,
    "vit": plain_models.vit,
    "llama": plain_models.llama,
    "moe": plain_models.moe,
    "dit": plain_models.dit,
}
"""The plain step of each problem."""


if __name__ == "__main__":
    main()
