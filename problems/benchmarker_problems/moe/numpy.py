"""Mixture of experts in NumPy: the functions of the reference, on BLAS, one expert after the other."""

from benchmarker_problems.generation.numpy import build_workload, describe_workload

__all__ = ["build_workload", "describe_workload"]
