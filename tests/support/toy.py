"""A third-party distribution with a framework and a problem that do as they are told."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

ENTRY_POINTS = {
    "framework.toy": "toy.framework",
    "problem.nap": "toy.nap",
    "workload.nap.toy": "toy.nap_toy",
}

TOY = {
    "__init__.py": "",
    "framework.py": """
        import os
        from benchmarker import Device, Framework, FrameworkInfo, hookimpl

        @hookimpl
        def describe_framework():
            devices = [Device("cpu", "toy", ("fp32", "fp64"))]
            if "TOY_CARD" in os.environ:
                devices.append(Device("cuda", "toy card", ("fp32",), uuid=os.environ["TOY_CARD"]))
            return FrameworkInfo("toy", "1.0", tuple(devices), "never", {"toy": "1.0"})

        @hookimpl
        def make_framework():
            return Toy()

        class Toy(Framework):
            def synchronize(self, result): pass
            def is_finite(self, result): return result == result
            def threads(self): return 1
            def settings(self): return {}
            def peak_memory_bytes(self): return None
    """,
    "nap.py": """
        from dataclasses import dataclass
        from typing import Annotated, Literal
        import numpy as np
        from msgspec import Meta
        from benchmarker import Cost, Data, Problem, hookimpl

        @dataclass(frozen=True)
        class NapParams:
            ms: Annotated[float, Meta(ge=0, description="milliseconds a step sleeps")] = 1.0
            fault: Literal[
                "none", "raise", "memory", "exit", "kill", "term", "hang", "wrong", "nan", "shape", "bad"
            ] = "none"
            after: Annotated[int, Meta(ge=0, description="steps before the fault")] = 0

        class Nap(Problem):
            summary = "a step that sleeps"
            params = NapParams
            cost_formula = "flops = 1000"
            def scopes(self, params, mode): return {"nap": 1}
            def cost(self, params, mode, precision): return Cost(1000, 8, 2)
            def data(self, params, precision, rng, batches):
                return Data({}, tuple({"x": rng.standard_normal(2)} for _ in range(batches)))
            def small(self, params): return params
            def reference(self, params, data, mode):
                for batch in data.batches:
                    yield {"x": batch["x"]}

        @hookimpl
        def make_problem():
            return Nap()
    """,
    "nap_toy.py": """
        import os, signal, sys, time
        import numpy as np
        from benchmarker import Support, Workload, hookimpl

        @hookimpl
        def describe_workload():
            return Support({"inference": ("fp32", "fp64")})

        @hookimpl
        def build_workload(params, data, case):
            small = len(data.batches) == 3
            taken = 0

            def step():
                nonlocal taken
                taken += 1
                time.sleep(params.ms / 1000)
                if not small and taken > params.after:
                    if params.fault == "raise": raise ValueError("told to\\nfail")
                    if params.fault == "memory": raise MemoryError("too much")
                    if params.fault == "exit":
                        print("last words", file=sys.stderr, flush=True)
                        os._exit(3)
                    if params.fault == "kill": os.kill(os.getpid(), signal.SIGKILL)
                    if params.fault == "term": os.kill(os.getpid(), signal.SIGTERM)
                    if params.fault == "hang": time.sleep(600)
                    if params.fault == "nan": return float("nan")
                return 1.0

            def outputs(result):
                if params.fault == "shape": return {"x": np.zeros(3)}
                return {"x": data.batches[0]["x"] * (1.5 if params.fault == "wrong" else 1.0)}

            def verify(result):
                return "told to be bad" if params.fault == "bad" and not small else None

            return Workload(step, outputs, verify=verify)
    """,
}


def install(folder: Path, name: str, entry_points: Mapping[str, str], files: Mapping[str, str]) -> None:
    """Put a distribution into `folder` as an installer would leave it: modules and metadata."""
    package = folder / name
    package.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (package / file).write_text(textwrap.dedent(text))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{address} = {module}" for address, module in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[benchmarker]", *lines, ""]))
