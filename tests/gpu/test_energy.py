"""NVML's counter agrees with polled power, a load is seen, and reading costs nothing."""

from typing import Any

import pytest
from support.gpu import Outcome, Tool, completed, metric

PRODUCT = ("--m=8192", "--n=8192", "--k=8192")
SECONDS = 15
"""Time over which the energy of products is measured."""
COUNTER = 0.05
"""Largest relative difference between the counter's energy and that of polled power."""
SLOWER = 1.01
"""Longest step with the sampler running, as a multiple of a step without it."""
BUSY_W = 1.5
"""Least power under load, as a multiple of the idle power."""


def _framework(tool: Tool) -> str:
    """Return a framework that sees the device, where NVML reads at least one GPU; skip the test if there is none."""
    power = tool.command("power")
    if not any(sensor["meter"] == "nvml" for sensor in power["sensors"]):
        reasons = [meter["message"] for meter in power["unavailable"] if meter["meter"] == "nvml"]
        pytest.skip("; ".join(reasons) or "NVML reads no GPU")
    return tool.framework()


def _product(tool: Tool, framework: str) -> list[str]:
    precision = tool.fast_precision(framework)
    return [f"--framework={framework}", "--problem=gemm", f"--precision={precision}", *PRODUCT]


@pytest.mark.gpu(limit_s=120)
def test_nvml_counter(tool: Tool) -> None:
    """NVML's energy counter and polled power agree within 5%."""
    framework = _framework(tool)
    words = (*_product(tool, framework), "--power-nvml", f"--power-min={SECONDS}", "--power-idle=4")
    (record,) = completed(tool.run(*words))
    tool.judge(judge_counter(record))


def judge_counter(record: dict[str, Any]) -> Outcome:
    """Counter and polled power must agree, the load must be visible, and the clocks must be known."""
    energy = record["energy"]
    if energy is None:
        return Outcome(wrong=[f"there is no energy: {record['reasons'].get('energy')}"])
    sensors = [each for each in energy["sensors"] if each["measured"] and each["ratio"] is not None]
    if not sensors:
        return Outcome(wrong=["no sensor of the device has both a counter and polled power"])
    first = sensors[0]
    idle, mean = first["idle_W"], first["mean_W"]
    figure = f"counter / polled {first['ratio']:.3f}; {mean:.0f} W"
    figure += f", idle {idle:.0f} W" if idle is not None else ""
    figure += f"; updates every {first['observed_update_ms']:.0f} ms" if first["observed_update_ms"] else ""
    wrong = []
    if abs(first["ratio"] - 1) > COUNTER:
        wrong.append(f"the counter is {first['ratio'] - 1:+.1%} off the polled power")
    if idle is not None and mean < BUSY_W * idle:
        wrong.append("the load is not visible in the power")
    if not record["telemetry"]:
        wrong.append("neither clocks nor throttle reasons were read")
    return Outcome(figure, wrong, {"ratio": first["ratio"], "mean_W": mean})


@pytest.mark.gpu(limit_s=200)
def test_nvml_batches(tool: Tool) -> None:
    """samples/J of GPT-2 is measured at four batch sizes."""
    framework = _framework(tool)
    size = ["n_layer=2", "seq_len=32"] if tool.small else ["seq_len=512"]
    words = ["sweep", f"--framework={framework}", "--problem=gpt2", f"--device={tool.device}", "--power-nvml"]
    words += ["--trials=1", "--power-min=8", "--power-idle=1", f"--precision={tool.fast_precision(framework)}"]
    words += [f"--{each.replace('_', '-')}" for each in size]
    tool.judge(judge_batches(tool.command(*words, "--axis", "batch_size=1,4,16,64")))


def judge_batches(records: list[dict[str, Any]]) -> Outcome:
    """Every batch size must have an energy, and the largest must be more efficient than one sample at a time."""
    found = {
        each["case"]["params"]["batch_size"]: None if each["error"] else metric(each, "samples_per_J")
        for each in records
    }
    figure = "samples/J " + ", ".join(
        f"{size}: {'-' if x is None else format(x, '.3g')}" for size, x in sorted(found.items())
    )
    wrong = [f"batch size {size} has no energy" for size, x in found.items() if x is None]
    first, last = found.get(min(found)), found.get(max(found))
    if first and last and last <= first:
        wrong.append("large batches are not more efficient")
    return Outcome(figure, wrong)


@pytest.mark.gpu(limit_s=150)
def test_nvml_sampler(tool: Tool) -> None:
    """Reading the GPU at 20 Hz makes a step at most 1% longer."""
    framework = _framework(tool)
    words = [*_product(tool, framework), "--blocks=60", "--seconds=4"]
    times: dict[str, list[float]] = {"none": [], "nvml": []}
    for _ in range(3):
        for power, found in times.items():
            extra = ["--power-min=4", "--power-idle=0"] if power != "none" else []
            (record,) = completed(tool.run(*words, f"--power={power}", *extra))
            found.append(metric(record, "step_time_median_s") or 0.0)
    tool.judge(judge_sampler(*(sorted(each)[1] for each in times.values())))


def judge_sampler(without_s: float, with_s: float) -> Outcome:
    """The step must not be more than 1% longer with the sampler."""
    ratio = with_s / without_s
    wrong = [f"the sampler makes a step {ratio - 1:.1%} longer"] if ratio > SLOWER else []
    return Outcome(f"with / without {ratio:.4f}", wrong, {"ratio": ratio})
