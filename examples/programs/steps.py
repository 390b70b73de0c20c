"""A program that runs its steps when it is told to; a step sorts N numbers.

Alone, `python steps.py N` runs a thousand steps.
"""

import json
import os
import socket
import sys
import time
from itertools import pairwise

size = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
numbers = [n * 7919 % 10007 for n in range(size)]
descriptor = os.environ.get("BENCHMARKER_FD")
tool = socket.socket(fileno=int(descriptor)).makefile("rw") if descriptor else None


def say(event, **values):
    """Write an event in a line."""
    print(json.dumps({"event": event, **values}), file=tool or sys.stdout, flush=True)


say("cost", samples=size)
say("ready")
result = sorted(numbers)
for line in tool or ["1000"]:
    steps, begun = int(line), time.perf_counter_ns()
    for _ in range(steps):
        result = sorted(numbers)
    say("block", steps=steps, duration_ns=time.perf_counter_ns() - begun)
say("check", ok=all(one <= other for one, other in pairwise(result)))
say("end")
