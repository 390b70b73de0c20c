"""The tool's loop adds nothing, and products, copies and GPT-2 run as fast as the device allows."""

import statistics
from typing import Any

import pytest
from support.gpu import FRAMEWORKS, Outcome, Tool, completed, metric
from support.loops import Ratio
from transformers_models import installed

PRODUCT_SHARE = 0.95
"""Least rate of a product through the tool, as a share of a bare loop's."""
COPY_SHARE = 0.95
LONGEST = 1.01
"""Longest step through the tool, as a multiple of a bare loop's."""
MFU = 0.45
"""Least model FLOP/s utilisation of GPT-2 training in the better framework, relative to the vendor's dense peak."""
HOST_SHARE = {"sleeping": (0.9, 1.0), "product": (-0.02, 0.02)}
"""Least and largest share of a step that the host adds: where it sleeps for a millisecond, and in a large product."""
FUNCTIONS = """
import time

import torch

def inputs(n=8192):
    return torch.randn(n, n), torch.randn(n, n)

def sleeping(a, b):
    time.sleep(1e-3)
    return a[:64] @ b[:, :64]

def product(a, b):
    return (a @ b)[:64, :64]
"""
AGAINST_OTHERS = 1.05
"""Longest step of GPT-2, as a multiple of that of another implementation."""
QUICK = (0.85, 1.15)
"""Least and largest quick ceiling, as a share of the thorough one."""
ABOVE_PEAK = 1.02
"""A measured ceiling above the vendor's peak by more than this is a mistake of one of them."""


@pytest.mark.gpu(limit_s=150)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_product(tool: Tool, framework: str) -> None:
    """Products in {framework} reach 95% of a bare loop's rate in every precision."""
    listed = tool.precisions(framework)["inference"]
    sizes = {
        precision: 256 if tool.small else 4096 if precision in ("fp32", "fp64") else 8192
        for precision in ("bf16", "fp16", "tf32", "fp32", "int8", "fp64")
        if precision in listed
    }
    common = {"framework": framework, "device": tool.device, "pairs": 20}
    cases = {precision: {**common, "precision": precision, "size": size} for precision, size in sizes.items()}
    ratios = tool.compare("product", cases)
    tool.judge(judge_products({precision: (sizes[precision], ratio) for precision, ratio in ratios.items()}))


def judge_products(found: dict[str, tuple[int, Ratio]]) -> Outcome:
    """The rate through the tool must be near the bare loop's in every precision."""
    rates = {name: 2 * size**3 / (each.bare_s * each.value) / 1e12 for name, (size, each) in found.items()}
    shares = {name: 1 / each.value for name, (_, each) in found.items()}
    figure = ", ".join(f"{name} {rates[name]:.3g} TFLOP/s ({shares[name]:.3f} of bare)" for name in found)
    values = {f"{name}_TFLOP_per_s": rate for name, rate in rates.items()}
    wrong = [f"{name} reaches {share:.1%} of a bare loop" for name, share in shares.items() if share < PRODUCT_SHARE]
    return Outcome(figure, wrong, values)


@pytest.mark.gpu(limit_s=60)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_copy(tool: Tool, framework: str) -> None:
    """A copy in {framework} reaches 95% of a bare loop's bandwidth."""
    tool.precisions(framework)
    elements = 2**22 if tool.small else 2**28
    case = {"framework": framework, "device": tool.device, "elements": elements, "pairs": 20}
    tool.judge(judge_copy(elements, tool.compare("copy", {"copy": case})["copy"]))


def judge_copy(elements: int, found: Ratio) -> Outcome:
    """The bandwidth through the tool must be near the bare loop's; read and written bytes count."""
    rate, bare = (8 * elements / seconds / 1e12 for seconds in (found.bare_s * found.value, found.bare_s))
    figure = f"{rate:.3g} TB/s, {1 / found.value:.3f} of bare ({bare:.3g} TB/s)"
    wrong = [f"it reaches {1 / found.value:.1%} of a bare loop"] if 1 / found.value < COPY_SHARE else []
    return Outcome(figure, wrong, {"TB_per_s": rate, "bare_TB_per_s": bare})


@pytest.mark.gpu(limit_s=180)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_loop(tool: Tool, framework: str) -> None:
    """A step of {framework} through the tool takes at most 1.01 of a bare loop's."""
    tool.precisions(framework)
    small = tool.small
    gpt2 = {"n_layer": 2, "seq_len": 64, "batch_size": 1} if small else {"n_layer": 4, "seq_len": 512}
    cases: dict[str, dict[str, Any]] = {
        "gemm 64": {"problem": "gemm", "m": 64, "n": 64, "k": 64},
        "gemm": {"problem": "gemm", **({"m": 512, "n": 512, "k": 512} if small else {})},
        "attention": {"problem": "attention", **({"seq_len": 128} if small else {})},
        "gpt2": {"problem": "gpt2", "mode": "training", **gpt2},
    }
    if framework == "torch" and not small:
        cases["gpt2 compiled"] = {**cases["gpt2"], "compiled": True}
    common = {"framework": framework, "device": tool.device, "precision": "fp32" if small else "bf16"}
    pairs = 10 if small else 30
    ratios = tool.compare("same", {name: {**common, **case, "pairs": pairs} for name, case in cases.items()})
    tool.judge(judge_loop(ratios))


def judge_loop(found: dict[str, Ratio]) -> Outcome:
    """No step may be longer than the bare loop's by more than 1%, beyond what noise explains."""
    figure = ", ".join(f"{name} {each.value:.4f}" for name, each in found.items())
    wrong = [f"{name} takes {each} times the bare loop" for name, each in found.items() if each.low > LONGEST]
    return Outcome(figure, wrong, {name: x.value for name, x in found.items()})


@pytest.mark.gpu(limit_s=120)
def test_device_time(tool: Tool) -> None:
    """By the clock of the device, a step that sleeps is nearly all the host's, and a large product is not."""
    tool.precisions("torch")
    if tool.small:
        pytest.skip("a CPU has no clock but the host's")
    (tool.folder / "functions.py").write_text(FUNCTIONS)
    records = tool.command("run", "functions.py", f"--device={tool.device}", "--precision=tf32", "--blocks=50")
    tool.judge(judge_device_time(completed(records)))


def judge_device_time(records: list[dict[str, Any]]) -> Outcome:
    """The host must add most of the step that sleeps, and next to nothing to the product."""
    figures, wrong = [], []
    for record in records:
        name, times = record["case"]["params"]["function"], record["device_time"]
        if times is None:
            wrong.append(f"{name}: {record['reasons']['device_time']}")
            continue
        device_s = statistics.median(times["duration_ns"]) / times["steps_per_block"] / 1e9
        host_s = metric(record, "step_time_median_s") or 0.0
        share, (low, high) = 1 - device_s / host_s, HOST_SHARE[name]
        figures.append(f"{name} {device_s * 1e3:.3g} ms of {host_s * 1e3:.3g} ms")
        wrong += [] if low <= share <= high else [f"the host's share of {name} is {share:.1%}"]
    return Outcome(", ".join(figures), wrong)


@pytest.mark.gpu(limit_s=500)
def test_gpt2_training(tool: Tool) -> None:
    """GPT-2 of 1.5 B trains in bf16 at an MFU of 45% or more."""
    tool.judge(judge_gpt2(*measured_gpt2(tool, "training"), MFU))


@pytest.mark.gpu(limit_s=400)
def test_gpt2_inference(tool: Tool) -> None:
    """GPT-2 of 1.5 B runs in bf16 in each framework."""
    tool.judge(judge_gpt2(*measured_gpt2(tool, "inference"), 0.0))


def measured_gpt2(tool: Tool, mode: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the records of GPT-2 in bf16 in PyTorch, PyTorch compiled and JAX, and what failed."""
    found: dict[str, dict[str, Any]] = {}
    missing, failed = [], []
    size = ["--n-layer=2", "--seq-len=64", "--blocks=3"] if tool.small else ["--size=xl", "--blocks=20", "--seconds=15"]
    for name, words in {"torch": [], "torch compiled": ["--compile"], "jax": []}.items():
        try:
            framework = name.split()[0]
            tool.precisions(framework)
            what = [f"--framework={framework}", "--problem=gpt2", f"--mode={mode}", "--precision=bf16"]
            (found[name],) = completed(tool.run(*what, *size, *words))
        except pytest.skip.Exception as reason:
            missing.append(f"{name}: {reason}")
        except pytest.fail.Exception as reason:
            failed.append(f"{name}: {reason}")
    if not found and not failed:
        pytest.skip("; ".join(missing))
    return found, failed


def judge_gpt2(found: dict[str, dict[str, Any]], failed: list[str], least: float) -> Outcome:
    """The better framework must reach the least MFU, if the vendor's peak is known; none that is here may fail."""
    rates = {name: metric(record, "tokens_per_s") for name, record in found.items()}
    mfus = {name: metric(record, "mfu") for name, record in found.items()}
    figure = ", ".join(
        f"{name} {rates[name]:.4g} tokens/s" + (f" (MFU {mfu:.1%})" if mfu is not None else "")
        for name, mfu in mfus.items()
    )
    best = max((mfu for mfu in mfus.values() if mfu is not None), default=None)
    wrong = list(failed)
    if best is None:
        figure += "; no MFU: the vendor's peak is unknown"
    elif best < least:
        wrong.append(f"the best MFU is {best:.1%}, less than {least:.0%}")
    return Outcome(figure, wrong, {f"{k}_mfu": v for k, v in mfus.items()})


@pytest.mark.gpu(limit_s=120)
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_huggingface(tool: Tool, mode: str) -> None:
    """A step of GPT-2 {mode} takes at most 1.05 of that of transformers."""
    tool.precisions("torch")
    if not installed():
        pytest.skip("transformers is not installed, or older than 5")
    size = {"n_layer": 2, "seq_len": 64, "batch_size": 1} if tool.small else {"size": "medium", "batch_size": 8}
    case = {"device": tool.device, "mode": mode, "precision": "fp32" if tool.small else "bf16", **size}
    ratios = tool.compare("transformers", {mode: {**case, "pairs": 10 if tool.small else 30}})
    tool.judge(judge_against(ratios[mode]))


def judge_against(found: Ratio) -> Outcome:
    """The step must not be slower than the other's by more than 5%."""
    wrong = [f"the step takes {found} times that of transformers"] if found.low > AGAINST_OTHERS else []
    return Outcome(f"ours / theirs {found}", wrong, {"ratio": found.value})


@pytest.mark.gpu(limit_s=360)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ceilings(tool: Tool, framework: str) -> None:
    """The ceilings measured with {framework} do not exceed the vendor's peaks."""
    listed = tool.precisions(framework)["inference"]
    wanted: list[str] = ["fp32"] if tool.small else [name for name in ("bf16", "fp32", "tf32") if name in listed]
    tool.judge(judge_ceilings(measured_ceilings(tool, framework, wanted, "--thorough", "--trials=2")))


def measured_ceilings(tool: Tool, framework: str, precisions: list[str], *words: str) -> list[dict[str, Any]]:
    """Return the ceilings that the command line measures in a framework."""
    where = (f"--framework={framework}", f"--device={tool.device}", f"--precision={','.join(precisions)}")
    found: list[dict[str, Any]] = tool.command("ceilings", *where, *words)
    return found


def judge_ceilings(found: list[dict[str, Any]]) -> Outcome:
    """No ceiling may exceed what the vendor publishes; without a published figure there is nothing to compare."""
    figures, wrong = [], []
    for each in found:
        unit = "TFLOP/s" if each["resource"] == "compute" else "TB/s"
        share = each["value"] / each["vendor_peak"] if each.get("vendor_peak") else None
        kind = f"{each['resource']} {each['precision']}"
        figures.append(f"{kind} {each['value'] / 1e12:.3g} {unit}" + (f" ({share:.0%} of peak)" if share else ""))
        if share and share > ABOVE_PEAK:
            wrong.append(f"{kind} is {share:.0%} of the vendor's peak")
    if not found:
        wrong.append("no ceiling was measured")
    return Outcome(", ".join(figures), wrong)


@pytest.mark.gpu(limit_s=300)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_quick_ceilings(tool: Tool, framework: str) -> None:
    """The ceilings measured quickly with {framework} are 0.85 to 1.15 of thorough ones."""
    precision = [tool.fast_precision(framework)]
    quick = measured_ceilings(tool, framework, precision)
    how = () if tool.small else ("--thorough", "--trials=2")
    tool.judge(judge_quick(quick, measured_ceilings(tool, framework, precision, *how)))


def judge_quick(quick: list[dict[str, Any]], thorough: list[dict[str, Any]]) -> Outcome:
    """Each quick ceiling must be near the thorough one."""
    values = {each["resource"]: each["value"] for each in quick}
    shares = {each["resource"]: values.get(each["resource"], 0.0) / each["value"] for each in thorough}
    figure = ", ".join(f"{resource} {share:.3f}" for resource, share in shares.items())
    low, high = QUICK
    wrong = [f"{name}: quick / thorough is {share:.3f}" for name, share in shares.items() if not low <= share <= high]
    if not shares:
        wrong.append("no ceiling was measured")
    return Outcome(figure, wrong, shares)
