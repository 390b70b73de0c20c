"""Claims about the device: it is the one asked for, its memory is counted, running out of it is survived."""

from functools import partial
from typing import Any

from benchmarker import Claim, NotHereError, Outcome, Setting
from benchmarker_plugins.gpu_proof.tool import completed, fast, for_each, need, run, tool

MEMORY_AGREEMENT = 0.02
"""Two reports of a device's memory agree within this share: drivers keep some of it."""


def named(setting: Setting, framework: str) -> Outcome:
    """Compare the device that a trial recorded with the one that nvidia-smi lists first."""
    need(setting, framework)
    gpus = tool(setting, "env")["machine"]["gpus"]
    if not gpus:
        raise NotHereError("nvidia-smi lists no GPU")
    words = (f"--framework={framework}", "--problem=gemm", "--blocks=3", "--gpus=0")
    (record,) = completed(run(setting, *words, "--m=1024", "--n=1024", "--k=1024"))
    return judge_named(record, gpus[0])


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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong))


def out_of_memory(setting: Setting, framework: str) -> Outcome:
    """Measure a case that cannot fit (its logits take 2 PB, its inputs 1 GB), then one that does, in one run."""
    need(setting, framework)
    if setting.small:
        raise NotHereError("on a CPU the machine's own memory would be exhausted")
    records = tool(
        setting,
        "sweep",
        f"--framework={framework}",
        "--problem=gpt2",
        "--n-layer=2",
        "--precision=bf16",
        f"--device={setting.device}",
        "--axis",
        "batch_size=20000,1",
        "--blocks=3",
    )
    return judge_out_of_memory(records)


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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong))


def preheat(setting: Setting, framework: str) -> Outcome:
    """Preheat a product from a cold device."""
    precision = fast(setting, framework)
    words = (f"--framework={framework}", "--problem=gemm", "--preheat", "--preheat-max=45", "--blocks=20")
    (record,) = completed(run(setting, *words, f"--precision={precision}"))
    return judge_preheat(record)


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
    if found["outcome"] != "plateau":
        return Outcome("FAIL", figure, "no plateau within 45 s")
    return Outcome("PASS", figure)


NAMED = for_each("named", "{} runs on the GPU that was asked for, and name, UUID and memory are right", 120, named)
MEMORY = for_each(
    "memory", "running out of device memory in {} is a record, and the next case runs", 120, out_of_memory
)
PREHEAT = Claim("preheat", "a preheat from a cold device ends at a plateau", 120, partial(preheat, framework="torch"))
