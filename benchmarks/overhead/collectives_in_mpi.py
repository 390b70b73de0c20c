"""Time collectives of MPI as the OSU benchmarks do, to hold those of PyTorch on the same machine against them.

Each call is timed, with a barrier after it outside the time; the mean of each rank is taken, and the mean over ranks.
It needs an MPI library and mpi4py: `mpiexec -n 2 python benchmarks/overhead/collectives_in_mpi.py`.
"""

import time

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def seconds(call, calls: int) -> float:
    """Return the mean over ranks of the mean time of a call."""
    own = 0.0
    for number in range(-10, calls):
        start = time.perf_counter()
        call()
        own += time.perf_counter() - start if number >= 0 else 0.0
        WORLD.Barrier()
    total: float = WORLD.allreduce(own / calls)
    return total / WORLD.size


def main() -> None:
    """Print the time of a call and the bus bandwidth."""
    n = WORLD.size
    for size in (2**10, 2**20, 2**24):
        whole, other = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
        share = np.ones(size // 4 // n, np.float32)
        calls = {
            "all_reduce": (lambda a=whole, b=other: WORLD.Allreduce(a, b), 2 * (n - 1) / n),
            "all_gather": (lambda a=share, b=whole: WORLD.Allgather(a, b), (n - 1) / n),
            "reduce_scatter": (lambda a=whole, b=share: WORLD.Reduce_scatter_block(a, b), (n - 1) / n),
        }
        for name, (call, factor) in calls.items():
            found = seconds(call, 1000 if size < 2**20 else 100)
            if WORLD.rank == 0:
                print(f"{name:15} {size:>9} {1e6 * found:9.1f} us {size * factor / found / 1e9:7.3f} GB/s", flush=True)


if __name__ == "__main__":
    main()
