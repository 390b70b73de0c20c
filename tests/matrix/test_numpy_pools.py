"""NumPy and SciPy have a BLAS each, with a pool of threads that spin while they wait: a step keeps to one of them."""

import json
import subprocess
import sys

import pytest

from benchmarker.machine.description import usable_cores

STEPS = """
import json, os, time
import numpy as np

def tasks():
    return set(os.listdir("/proc/self/task"))

def busy_ns(of):
    return sum(int(open(f"/proc/self/task/{task}/schedstat").read().split()[0]) for task in of)

main = {str(os.getpid())}
a = np.ones((300, 300))
a @ a
pools = {"numpy": tasks() - main}
from scipy.linalg import get_blas_funcs
get_blas_funcs("gemm", [a])(1.0, a, a)
pools["scipy"] = tasks() - main - pools["numpy"]
from benchmarker import open_bench

found = []
for problem, options in (
    ("cg", {"nx": 32, "ny": 32, "nz": 32, "iterations": 20, "precision": "fp64"}),
    ("lu", {"n": 1300, "factor": "fp32", "precision": "fp64"}),
):
    bench = open_bench(problem, "numpy", "cpu", **options)
    step = bench.build(bench.problem, bench.data(bench.problem, 2)).step
    step()
    time.sleep(0.3)  # until the threads of both have ceased to spin
    before = {name: busy_ns(pool) for name, pool in pools.items()}
    for _ in range(4):
        step()
    found.append({name: busy_ns(pool) - before[name] for name, pool in pools.items()})
print(json.dumps({"threads": {name: len(pool) for name, pool in pools.items()}, "busy_ns": found}))
"""


@pytest.mark.skipif(usable_cores() < 2, reason="one core has no pool of threads")
def test_a_step_that_computes_with_the_blas_of_scipy_leaves_that_of_numpy_asleep():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not all(found["threads"].values()):
        pytest.skip("NumPy and SciPy share their BLAS here")
    for busy_ns in found["busy_ns"]:
        assert busy_ns["scipy"] > 1e5
        assert busy_ns["numpy"] < 0.01 * busy_ns["scipy"]
