"""LSTM in bare oneDNN, without a backward pass: one call of its primitive for each layer.

It chooses the layout of weights, which are reordered in each step. Its gates have the order of the problem's.
"""

from ctypes import c_int, c_uint

import numpy as np

from benchmarker import Arrays, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.onednn import BIAS, DTYPES, INFERENCE, RESULT, SOURCE, WEIGHTS, OnednnFramework
from benchmarker_problems.lstm import Lstm
from benchmarker_problems.steps import calls
from benchmarker_problems.steps.calls import Prepared

_OF_STATE = WEIGHTS + 1
"""`DNNL_ARG_WEIGHTS_ITER`."""
_LEFT_TO_RIGHT = 1
"""`dnnl_unidirectional_left2right` (dnnl_types.h)."""


@hookimpl
def describe_workload() -> Support:
    """Return fp32: in bf16, the kernel of oneDNN 3.2 for AMX ends the process by an illegal instruction."""
    return Support({"inference": ("fp32",)})


@hookimpl
def build_workload(framework: OnednnFramework, case: Case, problem: Lstm, data: Data) -> Workload:
    """Build a step: the outputs of one batch, from states of zero, which they are if none are given."""
    p, dtype = problem, DTYPES[case.precision]
    weights = {name: np.ascontiguousarray(weight, dtype) for name, weight in data.weights.items()}
    outs = [np.empty((p.seq_len, p.batch_size, p.hidden_size), dtype) for _ in range(p.layers)]

    def prepared(batch: Arrays) -> Prepared:
        made: list[calls.Call] = []
        x_TBI = np.ascontiguousarray(batch["x"], dtype)
        for layer, out_TBH in enumerate(outs):
            w_x, w_h, b = (_by_gates(weights[f"{layer}.{name}"]) for name in ("w_x", "w_h", "b"))
            x_form, b_form, out_form = (framework.described(array) for array in (x_TBI, b, out_TBH))
            w_x_form, w_h_form = (framework.described(array, stored=False) for array in (w_x, w_h))
            kind = c_int(INFERENCE), c_int(_LEFT_TO_RIGHT)
            forms = x_form, None, None, w_x_form, w_h_form, None, None, b_form, out_form, None, None
            chosen = framework.chosen("lstm_forward", *kind, *forms, c_uint(0), None)
            inputs = {SOURCE: x_TBI, WEIGHTS: w_x, _OF_STATE: w_h, BIAS: b}
            made += framework.calls(chosen, inputs, {RESULT: out_TBH})
            x_TBI = out_TBH
        return {"out": x_TBI}, made

    return calls.workload(map(prepared, data.batches))


def _by_gates(weight: np.ndarray) -> np.ndarray:
    """Return the view [layers, directions, inputs, gates, H] of a layer's weights, or of its bias, without inputs."""
    return weight.reshape(1, 1, *weight.shape[:-1], 4, -1)
