"""Kernels are attributed to scopes, and a second reader of the profile finds the same times."""

import gzip
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.gpu import FRAMEWORKS, Outcome, Tool, completed

from benchmarker import load_events

ATTRIBUTED = 0.95
"""Least share of the device's time that is attributed to a scope."""
AGREEMENT = 0.001
"""Largest relative difference of the device's total time between two readers of one file."""
BUSY_AGREEMENT = 0.1
"""Largest relative difference of the device's busy time with and without CUDA graphs."""
SMALL_BYTES = 4 * 2**20
"""A profile up to this size is kept beside the summary."""


@pytest.mark.gpu(limit_s=150)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_trace(tool: Tool, framework: str) -> None:
    """95% of the kernel time of GPT-2 training in {framework} is attributed to scopes."""
    tool.judge(judge_attributed(profiled(tool, framework)))


@pytest.mark.gpu(limit_s=200)
def test_trace_torch_compiled(tool: Tool) -> None:
    """A profile after torch.compile holds the device's kernels."""
    tool.judge(judge_attributed(profiled(tool, "torch", "--compile"), compiled=True))


def profiled(tool: Tool, framework: str, *words: str) -> dict[str, Any]:
    """Return the record of GPT-2 training with a profile; a small profile is also kept in the test's folder."""
    tool.precisions(framework)
    size = ["--n-layer=2", "--seq-len=128"] if tool.small else ["--n-layer=2", "--seq-len=256", "--precision=bf16"]
    case = (f"--framework={framework}", "--problem=gpt2", "--mode=training", "--blocks=3", *size, *words)
    (record,) = completed(tool.run(*case, "--profile", "--profile-steps=3"))
    folder = tool.results / record["run_id"]
    profile = next(folder.glob(f"{record['trial_id']}.profile.*.gz"), None)
    if profile and profile.stat().st_size <= SMALL_BYTES:
        shutil.copy(profile, tool.folder / f"gpt2{''.join(profile.suffixes[-2:])}")
    return record


def judge_attributed(record: dict[str, Any], compiled: bool = False) -> Outcome:
    """The trace must be complete, on the case's device, and nearly all of its time in a scope of a phase.

    `torch.compile` drops scopes, so that only kernels and their device are required after it.
    """
    trace = record["trace"]
    if trace is None:
        return Outcome(wrong=[f"there is no trace: {record['reasons'].get('trace')}"])
    share = _attributed(trace)
    by_phase = Counter[str]()
    for each in record["scopes"]:
        by_phase[each["phase"]] += each["root_ns"]
    phases = ", ".join(f"{phase or 'no phase'} {ns / trace['busy_ns']:.0%}" for phase, ns in by_phase.most_common())
    devices = {each["device"] for each in trace["devices"]}
    figure = f"{share:.1%} of {trace['busy_ns'] / 1e6:.3g} ms in {trace['kernels']} kernels has a scope ({phases})"
    wrong = [] if compiled else trace["missing"][:3]
    if share < ATTRIBUTED and not compiled:
        wrong.append(f"only {share:.1%} is attributed")
    if not {"forward", "backward"} <= set(by_phase) and not compiled:
        wrong.append("forward and backward are not distinguished")
    if not trace["kernels"]:
        wrong.append("there is no kernel")
    if record["case"]["device"] != "cpu" and devices == {"cpu"}:
        wrong.append("the trace holds no event of the GPU")
    return Outcome(figure, wrong, {"share": share})


@pytest.mark.gpu(limit_s=90)
def test_trace_reader(tool: Tool) -> None:
    """A second reader finds the same kernels and times."""
    tool.precisions("torch")
    if tool.small:
        pytest.skip("a CPU has no kernels to sum")
    words = ("--framework=torch", "--problem=attention", "--blocks=3", "--profile", "--profile-steps=3")
    (record,) = completed(tool.run(*words, "--precision=bf16"))
    folder = tool.results / record["run_id"]
    ours = load_events(folder / f"{record['trial_id']}.json")
    kernels = ours[ours["kind"].isin(["kernel", "copy"])]
    profile = next(folder.glob(f"{record['trial_id']}.profile.json.gz"))
    tool.judge(judge_second_reader(len(kernels), int(kernels["dur_ns"].sum()), *plain_sum(profile)))


def plain_sum(profile: Path) -> tuple[int, int]:
    """Return the number and the total time, ns, of the kernels, copies and fills in a file of PyTorch's profiler."""
    events = json.loads(gzip.decompress(profile.read_bytes()))["traceEvents"]
    work = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return len(work), sum(round(each["dur"] * 1000) for each in work)


def judge_second_reader(count: int, total_ns: int, other_count: int, other_ns: int) -> Outcome:
    """Both must find the same kernels and the same time."""
    figure = f"{count} kernels, {total_ns / 1e6:.4g} ms; the other reader {other_count}, {other_ns / 1e6:.4g} ms"
    same = count == other_count and abs(total_ns - other_ns) <= AGREEMENT * max(1, other_ns)
    return Outcome(figure, [] if same else ["the readers differ"])


@pytest.mark.gpu(limit_s=150)
def test_trace_graphs(tool: Tool) -> None:
    """Profiling JAX without CUDA graphs keeps scopes and does the same work."""
    tool.precisions("jax")
    if tool.small:
        pytest.skip("a CPU has no command buffers")
    size = {"n_layer": 2, "seq_len": 256, "batch_size": 8}
    words = ("--framework=jax", "--problem=gpt2", "--precision=bf16", "--blocks=3", "--profile", "--profile-steps=3")
    (record,) = completed(tool.run(*words, *(f"--{name.replace('_', '-')}={value}" for name, value in size.items())))
    program = (
        "import pathlib, sys, benchmarker\n"
        f"bench = benchmarker.open_bench('gpt2', 'jax', {tool.device!r}, precision='bf16', **{size!r})\n"
        "step = bench.build(bench.problem, bench.data(bench.problem, 4)).step\n"
        "for _ in range(3): bench.framework.synchronize(step())\n"
        "with bench.framework.profile(pathlib.Path('graphs')) as marker:\n"
        "    for number in range(3):\n"
        "        with marker(number): bench.framework.synchronize(step())\n"
    )
    (tool.folder / "with_graphs.py").write_text(program)
    status, _, messages = tool.execute("with_graphs", PYTHONPATH=os.pathsep.join([str(tool.folder), *sys.path]))
    if status:
        pytest.fail(messages, pytrace=False)
    (profile,) = (tool.folder / "graphs").rglob("*.xplane.pb")
    (found,) = tool.command("profile", "import", str(profile), "--output=graphs")
    tool.judge(judge_command_buffers(record["trace"], found["trace"]))


def judge_command_buffers(without: dict[str, Any] | None, with_: dict[str, Any]) -> Outcome:
    """Without CUDA graphs nearly all time must have a scope, and the device must be about as busy as with them."""
    if without is None:
        return Outcome(wrong=["there is no trace"])
    shares = {"without graphs": _attributed(without), "with graphs": _attributed(with_)}
    longer = without["busy_ns"] / with_["busy_ns"]
    figure = ", ".join(f"{name} {share:.1%} has a scope" for name, share in shares.items())
    figure += f"; busy {longer:.3f} of the time with graphs"
    wrong = []
    if shares["without graphs"] < ATTRIBUTED:
        wrong.append("too little has a scope")
    if abs(longer - 1) > BUSY_AGREEMENT:
        wrong.append("switching CUDA graphs off changes what the device does")
    return Outcome(figure, wrong)


def _attributed(trace: dict[str, Any]) -> float:
    """Share of the busy time that has a scope."""
    return 1 - float(trace["outside_ns"]) / max(1, float(trace["busy_ns"]))
