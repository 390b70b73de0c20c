"""Claims about traces on this device: kernels are attributed to scopes, and a second reader finds the same times."""

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarker import Claim, NotHereError, Outcome, Setting, load_events
from benchmarker_plugins.gpu_proof.tool import completed, for_each, need, results, run, tool

ATTRIBUTED = 0.95
"""Least share of the device's time that is attributed to a scope."""
AGREEMENT = 0.001
"""Largest relative difference of the device's total time between two readers of one file."""
BUSY_AGREEMENT = 0.1
"""Largest relative difference of the device's busy time with and without CUDA graphs."""
SMALL_BYTES = 4 * 2**20
"""A profile up to this size is kept beside the summary."""


def attributed(setting: Setting, framework: str, compiled: bool = False) -> Outcome:
    """Profile GPT-2 training and divide its time by scope."""
    need(setting, framework)
    size = ["--n-layer=2", "--seq-len=128"] if setting.small else ["--n-layer=2", "--seq-len=256", "--precision=bf16"]
    words = (f"--framework={framework}", "--problem=gpt2", "--mode=training", "--blocks=3", *size)
    extra = ["--compile"] if compiled else []
    (record,) = completed(run(setting, *words, *extra, "--profile", "--profile-steps=3"))
    folder = results(setting) / record["run_id"]
    profile = next(folder.glob(f"{record['trial_id']}.profile.*.gz"), None)
    if profile and profile.stat().st_size <= SMALL_BYTES:
        shutil.copy(
            profile, setting.folder / f"gpt2-{framework}{'-compiled' * compiled}{''.join(profile.suffixes[-2:])}"
        )
    return judge_attributed(record, compiled)


def judge_attributed(record: dict[str, Any], compiled: bool = False) -> Outcome:
    """The trace must be complete, on the case's device, and nearly all of its time in a scope of a phase.

    `torch.compile` drops scopes, so that only kernels and their device are required after it.
    """
    trace = record["trace"]
    if trace is None:
        return Outcome("FAIL", reason=f"there is no trace: {record['reasons'].get('trace')}")
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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), {"share": share})


def second_reader(setting: Setting) -> Outcome:
    """Compare the device time of a PyTorch profile with a plain sum over the events of the same file."""
    need(setting, "torch")
    if setting.small:
        raise NotHereError("a CPU has no kernels to sum")
    words = ("--framework=torch", "--problem=attention", "--blocks=3", "--profile", "--profile-steps=3")
    (record,) = completed(run(setting, *words, "--precision=bf16"))
    folder = results(setting) / record["run_id"]
    ours = load_events(folder / f"{record['trial_id']}.json")
    kernels = ours[ours["kind"].isin(["kernel", "copy"])]
    profile = next(folder.glob(f"{record['trial_id']}.profile.json.gz"))
    return judge_second_reader(len(kernels), int(kernels["dur_ns"].sum()), *plain_sum(profile))


def plain_sum(profile: Path) -> tuple[int, int]:
    """Return the number and the total time, ns, of the kernels, copies and fills in a file of PyTorch's profiler."""
    events = json.loads(gzip.decompress(profile.read_bytes()))["traceEvents"]
    work = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return len(work), sum(round(each["dur"] * 1000) for each in work)


def judge_second_reader(count: int, total_ns: int, other_count: int, other_ns: int) -> Outcome:
    """Both must find the same kernels and the same time."""
    figure = f"{count} kernels, {total_ns / 1e6:.4g} ms; the other reader {other_count}, {other_ns / 1e6:.4g} ms"
    same = count == other_count and abs(total_ns - other_ns) <= AGREEMENT * max(1, other_ns)
    return Outcome("PASS" if same else "FAIL", figure, "" if same else "the readers differ")


def command_buffers(setting: Setting) -> Outcome:
    """Profile a JAX step with CUDA graphs, which the tool switches off under the profiler, and without them."""
    need(setting, "jax")
    if setting.small:
        raise NotHereError("a CPU has no command buffers")
    size = {"n_layer": 2, "seq_len": 256, "batch_size": 8}
    words = ("--framework=jax", "--problem=gpt2", "--precision=bf16", "--blocks=3", "--profile", "--profile-steps=3")
    (record,) = completed(
        run(setting, *words, *(f"--{name.replace('_', '-')}={value}" for name, value in size.items()))
    )
    program = (
        "import pathlib, sys, benchmarker\n"
        f"bench = benchmarker.open_bench('gpt2', 'jax', {setting.device!r}, precision='bf16', **{size!r})\n"
        "step = bench.build(bench.params, bench.data(bench.params, 4)).step\n"
        "for _ in range(3): bench.framework.synchronize(step())\n"
        "with bench.framework.profile(pathlib.Path('graphs')) as marker:\n"
        "    for number in range(3):\n"
        "        with marker(number): bench.framework.synchronize(step())\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=setting.folder, check=True)
    (profile,) = (setting.folder / "graphs").rglob("*.xplane.pb")
    (found,) = tool(setting, "profile", "import", str(profile), "--output=graphs")
    return judge_command_buffers(record["trace"], found["trace"])


def judge_command_buffers(without: dict[str, Any] | None, with_: dict[str, Any]) -> Outcome:
    """Without CUDA graphs nearly all time must have a scope, and the device must be about as busy as with them."""
    if without is None:
        return Outcome("FAIL", reason="there is no trace")
    shares = {"without graphs": _attributed(without), "with graphs": _attributed(with_)}
    longer = without["busy_ns"] / with_["busy_ns"]
    figure = ", ".join(f"{name} {share:.1%} has a scope" for name, share in shares.items())
    figure += f"; busy {longer:.3f} of the time with graphs"
    wrong = []
    if shares["without graphs"] < ATTRIBUTED:
        wrong.append("too little has a scope")
    if abs(longer - 1) > BUSY_AGREEMENT:
        wrong.append("switching CUDA graphs off changes what the device does")
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong))


def _attributed(trace: dict[str, Any]) -> float:
    """Share of the busy time that has a scope."""
    return 1 - float(trace["outside_ns"]) / max(1, float(trace["busy_ns"]))


TRACES = (
    *for_each("trace", "95% of the kernel time of GPT-2 training in {} is attributed to scopes", 150, attributed),
    Claim(
        "trace-torch-compiled",
        "a profile after torch.compile holds the device's kernels",
        200,
        partial(attributed, framework="torch", compiled=True),
    ),
)
READER = Claim("trace-reader", "a second reader finds the same kernels and times", 90, second_reader)
GRAPHS = Claim(
    "trace-graphs", "profiling JAX without CUDA graphs keeps scopes and does the same work", 150, command_buffers
)
