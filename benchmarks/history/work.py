"""Time one kind of work in a fresh process: `work.py KIND COUNT BLOCKS` prints the nanoseconds of each block.

The work of a block is proportional to COUNT: 1010 is 1% more than 1000.
"""

import sys
import time


def loop(count: int) -> None:
    """Add squares: COUNT times 80 steps of the interpreter's loop."""
    total = 0
    for number in range(80 * count):
        total += number * number


def sort(count: int) -> None:
    """Sort 300 shuffled numbers COUNT times."""
    shuffled = [(7919 * number) % 300 for number in range(300)]
    for _ in range(count):
        sorted(shuffled)


def copy(count: int) -> None:
    """Copy 128 KiB COUNT times."""
    source = bytes(131072)
    for _ in range(count):
        bytearray(source)


KINDS = {"loop": loop, "sort": sort, "copy": copy}

if __name__ == "__main__":
    work, count, blocks = KINDS[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    work(count)
    times = []
    for _ in range(blocks):
        start = time.perf_counter_ns()
        work(count)
        times.append(time.perf_counter_ns() - start)
    print(*times)
