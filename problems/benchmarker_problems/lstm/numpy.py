"""LSTM in NumPy: the function of the reference, on BLAS, in the type of the weights."""

from benchmarker_problems.steps.numpy import build_workload, describe_workload

__all__ = ["build_workload", "describe_workload"]
