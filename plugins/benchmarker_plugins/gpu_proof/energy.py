"""Claims about power: the counter agrees with polled power, a load is seen, and reading costs nothing."""

from typing import Any

from benchmarker import Claim, NotHereError, Outcome, Setting
from benchmarker_plugins.gpu_proof.tool import completed, fast, metric, present, run, tool

PRODUCT = ("--m=8192", "--n=8192", "--k=8192")
SECONDS = 15
"""Time over which the energy of products is measured."""
COUNTER = 0.05
"""Largest relative difference between the counter's energy and that of polled power."""
SLOWER = 1.01
"""Longest step with the sampler running, as a multiple of a step without it."""
BUSY_W = 1.5
"""Least power under load, as a multiple of the idle power."""


def _framework(setting: Setting) -> str:
    """Return a framework that sees the device, where NVML reads at least one GPU; raises `NotHereError`."""
    found = tool(setting, "power")
    if not any(each["meter"] == "nvml" for each in found["sensors"]):
        reasons = [each["message"] for each in found["unavailable"] if each["meter"] == "nvml"]
        raise NotHereError("; ".join(reasons) or "NVML reads no GPU")
    return present(setting)[0]


def _product(setting: Setting, framework: str) -> list[str]:
    precision = fast(setting, framework)
    return [f"--framework={framework}", "--problem=gemm", f"--precision={precision}", *PRODUCT]


def counter(setting: Setting) -> Outcome:
    """Measure the energy of products for 15 s by NVML's counter and by polled power."""
    framework = _framework(setting)
    words = (*_product(setting, framework), "--power-nvml", f"--power-min={SECONDS}", "--power-idle=4")
    (record,) = completed(run(setting, *words))
    return judge_counter(record)


def judge_counter(record: dict[str, Any]) -> Outcome:
    """Counter and polled power must agree, the load must be visible, and the clocks must be known."""
    energy = record["energy"]
    if energy is None:
        return Outcome("FAIL", reason=f"there is no energy: {record['reasons'].get('energy')}")
    sensors = [each for each in energy["sensors"] if each["measured"] and each["ratio"] is not None]
    if not sensors:
        return Outcome("FAIL", reason="no sensor of the device has both a counter and polled power")
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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), {"ratio": first["ratio"], "mean_W": mean})


def batches(setting: Setting) -> Outcome:
    """Measure samples/J of GPT-2 inference at four batch sizes."""
    framework = _framework(setting)
    size = ["n_layer=2", "seq_len=32"] if setting.small else ["seq_len=512"]
    words = ["sweep", f"--framework={framework}", "--problem=gpt2", f"--device={setting.device}", "--power-nvml"]
    words += ["--power-min=8", "--power-idle=1", f"--precision={fast(setting, framework)}"]
    words += [f"--{each.replace('_', '-')}" for each in size]
    return judge_batches(tool(setting, *words, "--axis", "batch_size=1,4,16,64"))


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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong))


def sampler(setting: Setting) -> Outcome:
    """Compare products with the sampler at 20 Hz and without it, in rounds."""
    framework = _framework(setting)
    words = [*_product(setting, framework), "--blocks=60", "--seconds=4"]
    times: dict[str, list[float]] = {"none": [], "nvml": []}
    for _ in range(3):
        for power, found in times.items():
            extra = ["--power-min=4", "--power-idle=0"] if power != "none" else []
            (record,) = completed(run(setting, *words, f"--power={power}", *extra))
            found.append(metric(record, "step_time_median_s") or 0.0)
    return judge_sampler(*(sorted(each)[1] for each in times.values()))


def judge_sampler(without_s: float, with_s: float) -> Outcome:
    """The step must not be more than 1% longer with the sampler."""
    ratio = with_s / without_s
    wrong = f"the sampler makes a step {ratio - 1:.1%} longer" if ratio > SLOWER else ""
    return Outcome("FAIL" if wrong else "PASS", f"with / without {ratio:.4f}", wrong, {"ratio": ratio})


ENERGY = Claim("nvml-counter", "NVML's energy counter and polled power agree within 5%", 120, counter)
BATCHES = Claim("nvml-batches", "samples/J of GPT-2 is measured at four batch sizes", 200, batches)
SAMPLER = Claim("nvml-sampler", "reading the GPU at 20 Hz makes a step at most 1% longer", 150, sampler)
