"""The device is the one asked for, its memory is counted, and running out of it is survived."""

from typing import Any

import pytest
from support.gpu import FRAMEWORKS, Outcome, Tool, completed

MEMORY_AGREEMENT = 0.02
"""Two reports of a device's memory agree within this share: drivers keep some of it."""


@pytest.mark.gpu(limit_s=120)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_named(tool: Tool, framework: str) -> None:
    """{framework} runs on the GPU that was asked for, and name, UUID and memory are right."""
    tool.precisions(framework)
    gpus = tool.command("env")["machine"]["gpus"]
    if not gpus:
        pytest.skip("nvidia-smi lists no GPU")
    words = (f"--framework={framework}", "--problem=gemm", "--blocks=3", "--gpus=0")
    (record,) = completed(tool.run(*words, "--m=1024", "--n=1024", "--k=1024"))
    tool.judge(judge_named(record, gpus[0]))


def judge_named(record: dict[str, Any], gpu: dict[str, Any]) -> Outcome:
    """Name, UUID, memory and peak memory of a small product must fit the GPU."""
    device, peak = record["device"], record["memory"]["device_peak_bytes"]
    figure = f"{device['name']}, {device['uuid']}, peak {(peak or 0) / 2**20:.0f} MiB"
    wrong = []
    if device["name"] != gpu["name"]:
        wrong.append(f"the name is {device['name']!r}, nvidia-smi says {gpu['name']!r}")
    if device["uuid"] != gpu["uuid"]:
        wrong.append(f"the UUID is {device['uuid']}, nvidia-smi says {gpu['uuid']}")
    if record["case"]["gpu"] != 0:
        wrong.append("--gpus=0 is not in the record")
    total = gpu["memory_bytes"]
    if total and device["memory_bytes"] is not None and abs(device["memory_bytes"] / total - 1) > MEMORY_AGREEMENT:
        wrong.append(f"the memory is {device['memory_bytes'] / 2**30:.1f} GiB, nvidia-smi says {total / 2**30:.1f} GiB")
    # Eight matrices of 4 MiB, an output and cuBLAS's workspace: a preallocated pool would be tens of GiB.
    if not peak or peak > 2**30:
        wrong.append(f"the peak memory of a product of 1024 x 1024 matrices is {peak} bytes")
    return Outcome(figure, wrong)


@pytest.mark.gpu(limit_s=120)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_memory(tool: Tool, framework: str) -> None:
    """Running out of device memory in {framework} is a record, and the next case runs."""
    tool.precisions(framework)
    if tool.small:
        pytest.skip("on a CPU the machine's own memory would be exhausted")
    # The logits of the first case take 2 PB, its inputs 1 GB.
    case = (f"--framework={framework}", f"--device={tool.device}", "--problem=gpt2", "--n-layer=2", "--precision=bf16")
    records = tool.command("sweep", *case, "--axis", "batch_size=20000,1", "--blocks=3", "--trials=1")
    tool.judge(judge_out_of_memory(records))


def judge_out_of_memory(records: list[dict[str, Any]]) -> Outcome:
    """The large case must fail as `out_of_memory`, the small one must be measured."""
    found = {record["case"]["params"]["batch_size"]: record for record in records}
    large, small = found[max(found)], found[min(found)]
    kind = large["error"]["kind"] if large["error"] else "no failure"
    wrong = []
    if kind != "out_of_memory":
        wrong.append(f"the case that cannot fit: {kind}" + (f": {large['error']['message']}" if large["error"] else ""))
    if small["error"]:
        wrong.append(f"the case after it: {small['error']['message']}")
    figure = f"{kind}, then {'a failure' if small['error'] else 'a record'}"
    return Outcome(figure, wrong)


@pytest.mark.gpu(limit_s=120)
def test_preheat(tool: Tool) -> None:
    """A preheat from a cold device ends at a plateau."""
    precision = tool.fast_precision("torch")
    words = ("--framework=torch", "--problem=gemm", "--preheat", "--preheat-max=45", "--blocks=20")
    (record,) = completed(tool.run(*words, f"--precision={precision}"))
    tool.judge(judge_preheat(record))


def judge_preheat(record: dict[str, Any]) -> Outcome:
    """The preheat must reach a plateau, and the timed part must not begin at another rate."""
    found = record["preheat"]
    rates = found["window_steps_per_s"]
    figure = f"{found['outcome']} after {found['duration_s']:.0f} s"
    if rates:
        figure += f"; the rate changed by {rates[-1] / rates[0] - 1:+.1%}"
    if found["window_temperature_C"] and None not in (
        found["window_temperature_C"][0],
        found["window_temperature_C"][-1],
    ):
        figure += f", {found['window_temperature_C'][0]:.0f} to {found['window_temperature_C'][-1]:.0f} °C"
    return Outcome(figure, [] if found["outcome"] == "plateau" else ["no plateau within 45 s"])
