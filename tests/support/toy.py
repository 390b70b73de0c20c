"""A third-party distribution with a framework and problems that do as they are told."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

ENTRY_POINTS = {
    "framework.toy": "toy.framework",
    "problem.chat": "toy.chat",
    "problem.nap": "toy.nap",
    "problem.team": "toy.team",
    "workload.chat.toy": "toy.chat_toy",
    "workload.nap.toy": "toy.nap_toy",
    "workload.team.toy": "toy.team_toy",
}

TOY = {
    "__init__.py": "",
    "framework.py": """
        import json, os
        from contextlib import contextmanager, nullcontext
        from benchmarker import Device, Framework, FrameworkInfo, hookimpl

        @hookimpl
        def describe_framework():
            devices = [Device("cpu", "toy", ("fp32", "fp64"), count=None)]
            if "TOY_CARD" in os.environ:
                cards = os.environ["TOY_CARD"].split(",")
                devices.append(Device("cuda", "toy card", ("fp32",), uuid=cards[0], count=len(cards)))
            return FrameworkInfo(
                "toy", "1.0", tuple(devices), "never", {"toy": "1.0"}, ("TOY_CARD",), group="process_per_device"
            )

        @hookimpl
        def make_framework():
            return Toy()

        class Toy(Framework):
            group = None
            def join(self, group): self.group = group
            def is_lost_peer(self, error): return "toy peer" in str(error)
            def synchronize(self, result): pass
            def is_finite(self, result): return result == result
            def threads(self): return 1
            def settings(self):
                return {"no text": 1} if self.group and os.environ.get("TOY_INVALID") == str(self.group.rank) else {}
            def peak_memory_bytes(self): return None
            def device_timer(self):
                told = os.environ.get("TOY_TIMER")
                return (lambda step, steps: self.timed(step, steps, told)) if told else None
            def timed(self, step, steps, told):
                # A device of 0.4 ms a step; its queue holds two.
                if told == "fails": raise ValueError("told to fail")
                for _ in range(steps): step()
                return None if steps > 2 or told == "waits" else 400_000 * steps
            def profile(self, folder):
                told = os.environ.get("TOY_PROFILER")
                return self.traced(folder, told) if told else super().profile(folder)
            @contextmanager
            def traced(self, folder, told):
                # In each step of 100 us, rank r computes for 20 us + 10 us * r, then all reduce until 90 us.
                rank, events, numbers = self.group.rank, [], []
                if told == f"fails on rank {rank}": raise ValueError("told to fail")
                if told == f"exits on rank {rank}": os._exit(7)
                def event(name, category, ts, dur, tid, **args):
                    events.append(dict(ph="X", name=name, cat=category, pid=rank, tid=tid, ts=ts, dur=dur, args=args))
                def mark(number):
                    numbers.append(number)
                    return nullcontext()
                yield mark
                shapes = {"Input Dims": [[256]], "Input type": ["float"]}
                for number in numbers:
                    at, begin = 1000 + 100 * number, 20 + 10 * rank
                    event(f"ProfilerStep#{number}", "user_annotation", at, 100, 1)
                    event("nap", "user_annotation", at, 90, 1)
                    event("aten::mm", "cpu_op", at, begin, 1)
                    event("c10d::allreduce_", "cpu_op", at + begin, 2, 1, **shapes)
                    event("gloo:all_reduce", "user_annotation", at + begin, 90 - begin, 2, **shapes)
                (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    """,
    "chat.py": """
        from dataclasses import dataclass, replace
        import numpy as np
        from benchmarker import Cost, Data, Generates, hookimpl

        @dataclass(frozen=True)
        class Chat(Generates):
            summary = "text of which each token sleeps; it fails in the request after so many"
            cost_formula = "flops = 1000"
            first_ms: float = 20.0
            gap_ms: float = 5.0
            new_tokens: int = 4
            last_words: int = 0
            slots: int = 2
            positions: int = 8
            is_wrong: bool = False

            def scopes(self, mode): return {}
            def cost(self, mode, precision):
                output = 2 * self.new_tokens
                return Cost(1000, 8, 2, output, input_tokens=20, output_tokens=output)
            def data(self, precision, rng, batches): return Data({}, ({},))
            def small(self): return replace(self, slots=2, positions=8, last_words=0)
            def reference(self, data, mode): yield {"x": np.array(1.0)}
            def phases(self): return {"step": (1, self)}
            def cache_bytes(self, precision): return 0
            def parameter_count(self): return 0
            @classmethod
            def engine_options(cls, slots, positions): return dict(slots=slots, positions=positions, new_tokens=1)
            def logits(self, data, tokens): return np.eye(10)[(tokens + 1) % 10]

        @hookimpl
        def define_problem():
            return Chat
    """,
    "chat_toy.py": """
        import os, time
        import numpy as np
        from benchmarker import Engine, Support, Workload, hookimpl

        @hookimpl
        def describe_workload():
            return Support({"inference": ("fp32",)})

        @hookimpl
        def build_engine(problem):
            tokens = np.zeros(problem.slots, int)
            prompts = 0

            def fill(slot, prompt):
                nonlocal prompts
                prompts += 1
                if problem.last_words and prompts > problem.last_words: os._exit(7)
                time.sleep(problem.first_ms / 1000)
                tokens[slot] = (prompt[-1] + 1 + problem.is_wrong) % 10
                return int(tokens[slot])

            def decode():
                time.sleep(problem.gap_ms / 1000)
                tokens[:] = (tokens + 1) % 10
                return tokens.copy()

            return Engine(fill, decode, problem.slots, problem.positions, 10)

        @hookimpl
        def build_workload(problem):
            requests = 0

            def tokens(tell):
                nonlocal requests
                if problem.last_words and requests == problem.last_words: raise ValueError("out of words")
                requests += 1
                time.sleep(problem.first_ms / 1000)
                tell("first")
                for _ in range(problem.new_tokens - 1):
                    time.sleep(problem.gap_ms / 1000)
                    tell("next")

            def step():
                time.sleep(0.001)
                return 1.0

            return Workload(step, lambda _: {"x": np.array(1.0)}, tokens=tokens)
    """,
    "nap.py": """
        from dataclasses import dataclass
        from typing import Annotated, Literal
        import numpy as np
        from msgspec import Meta
        from benchmarker import Cost, Data, Divides, hookimpl

        @dataclass(frozen=True)
        class Nap(Divides):
            summary = "a step that sleeps"
            cost_formula = "flops = 1000"
            ms: Annotated[float, Meta(ge=0, description="milliseconds a step sleeps")] = 1.0
            fault: Literal[
                "none", "raise", "memory", "exit", "kill", "term", "stop", "hang", "wrong", "nan", "shape", "bad",
                "late", "lost", "loud", "clock",
            ] = "none"
            after: Annotated[int, Meta(ge=0, description="steps before the fault")] = 0

            def scopes(self, mode): return {"nap": 1}
            def cost(self, mode, precision): return Cost(1000, 8, 2)
            def data(self, precision, rng, batches):
                return Data({}, tuple({"x": rng.standard_normal(2)} for _ in range(batches)))
            def small(self): return self
            def step(self, weights, batch, mode):
                return {"x": batch["x"]} | {f"x{rank}": batch["x"] + rank for rank in range(1, self.devices)}

        @hookimpl
        def define_problem():
            return Nap
    """,
    "nap_toy.py": """
        import os, signal, sys, time
        import numpy as np
        from benchmarker import Support, Workload, hookimpl

        @hookimpl
        def describe_workload():
            return Support({"inference": ("fp32", "fp64")}, parallel=("none",))

        FAULTY = int(os.environ.get("TOY_RANK", "0"))  # the rank of a process group that has the fault
        LONGER = 1 + float(os.environ.get("TOY_LONGER", "0"))  # the work of a step on a machine made slow on purpose

        @hookimpl
        def build_workload(framework, problem, data, case):
            rank = framework.group.rank if framework.group else 0
            small = len(data.batches) == 3
            taken = 0
            if problem.fault == "clock":
                true_ns = time.perf_counter_ns
                time.perf_counter_ns = lambda: 100 * true_ns()

            def step():
                nonlocal taken
                taken += 1
                time.sleep(problem.ms / 1000 * (1 + rank) * LONGER)
                if problem.fault == "late" and not small and taken > problem.after:
                    if rank != FAULTY: raise RuntimeError("the toy peer is gone")
                    time.sleep(0.5)
                    raise ValueError("told to fail late")
                if problem.fault == "loud" and rank == FAULTY and not small and taken <= 12:
                    print("x" * 1_000_000, flush=True)
                    print("x" * 1_000_000, file=sys.stderr, flush=True)
                if rank == FAULTY and not small and taken > problem.after:
                    if problem.fault == "lost": raise RuntimeError("the toy peer is gone")
                    if problem.fault == "raise": raise ValueError("told to\\nfail")
                    if problem.fault == "memory": raise MemoryError("too much")
                    if problem.fault == "exit":
                        print("last words", file=sys.stderr, flush=True)
                        os._exit(3)
                    if problem.fault == "kill": os.kill(os.getpid(), signal.SIGKILL)
                    if problem.fault == "term": os.kill(os.getpid(), signal.SIGTERM)
                    if problem.fault == "stop": os.kill(os.getpid(), signal.SIGSTOP)
                    if problem.fault == "hang": time.sleep(600)
                    if problem.fault == "nan": return float("nan")
                return 1.0

            def outputs(result):
                if problem.fault == "shape" and rank == FAULTY: return {f"x{rank or ''}": np.zeros(3)}
                wrong = problem.fault == "wrong" and rank == FAULTY
                x = data.batches[0]["x"] + rank
                return {f"x{rank or ''}": x * (1.5 if wrong else 1.0)}

            def verify(result):
                return "told to be bad" if problem.fault == "bad" and rank == FAULTY and not small else None

            return Workload(step, outputs, verify=verify)
    """,
    "team.py": """
        from dataclasses import dataclass, replace
        from typing import Annotated, Literal
        import numpy as np
        from msgspec import Meta
        from benchmarker import Cost, Data, Divides, UserError, hookimpl

        @dataclass(frozen=True)
        class Team(Divides):
            summary = "a step in which devices share samples, for which they sleep, and wait for the slowest"
            cost_formula = "flops = 1000 for each sample"
            samples: Annotated[int, Meta(ge=1, description="samples of all devices")] = 4
            ms: Annotated[float, Meta(ge=0, description="milliseconds that a device sleeps for a sample")] = 1.0
            exchange_ms: Annotated[float, Meta(ge=0, description="milliseconds that an exchange takes")] = 0.0
            slow_rank: Annotated[int, Meta(ge=-1, description="the rank that sleeps longer")] = -1
            slower: Annotated[float, Meta(ge=0, description="by how much longer it sleeps")] = 0.3
            local: Annotated[Literal["sleeps", "fails", "none"], Meta(description="its work alone")] = "sleeps"

            def grown(self): return replace(self, samples=self.devices * self.samples)
            def refuse(self, mode):
                if self.samples % self.devices:
                    raise UserError(f"--samples={self.samples} cannot be divided among {self.devices} devices")
            def scopes(self, mode): return {}
            def cost(self, mode, precision): return Cost(1000 * self.samples, 8, self.samples)
            def data(self, precision, rng, batches): return Data({}, ({},))
            def small(self): return self
            def reference(self, data, mode): yield {"x": np.array(1.0)}

        @hookimpl
        def define_problem():
            return Team
    """,
    "team_toy.py": """
        import os, time
        import numpy as np
        from benchmarker import Support, Workload, hookimpl

        @hookimpl
        def describe_workload():
            return Support({"inference": ("fp32",)}, parallel=("none",))

        @hookimpl
        def build_workload(framework, problem, case):
            rank, ranks = (framework.group.rank, framework.group.ranks) if framework.group else (0, 1)
            if case.independent: rank = int(os.environ["CUDA_VISIBLE_DEVICES"])

            def local_s(rank):
                slow = int(os.environ.get("TOY_SLOW_RANK", problem.slow_rank))
                slower = problem.slower if rank == slow else 0.0
                return problem.samples / ranks * problem.ms / 1000 * (1 + slower)

            longer = 1 + float(os.environ.get("TOY_EXCHANGE_LONGER", "0"))
            exchange_s = problem.exchange_ms / 1000 * longer if ranks > 1 else 0.0
            whole_s = local_s(rank) if case.independent else max(map(local_s, range(ranks))) + exchange_s
            now_ns = time.perf_counter_ns()
            time.perf_counter_ns = lambda: now_ns  # the clock of blocks stands still but for what is slept by it

            def sleep(seconds):
                nonlocal now_ns
                now_ns += round(seconds * 1e9)

            def step():
                sleep(whole_s)
                return 1.0

            def local():
                if problem.local == "fails" and rank: raise MemoryError("no room")
                return [lambda: sleep(local_s(rank))]

            makes = None if problem.local == "none" else local
            return Workload(step, lambda _: {"x": np.array(1.0)}, local=makes)
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
