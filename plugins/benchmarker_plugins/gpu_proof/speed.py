"""Claims about speed: the tool's loop adds nothing, and products, copies and GPT-2 run as fast as the device allows."""

from functools import partial
from typing import Any

from benchmarker import Claim, NotHereError, Outcome, Setting, open_bench
from benchmarker_plugins.gpu_proof import huggingface, loops
from benchmarker_plugins.gpu_proof.loops import Ratio
from benchmarker_plugins.gpu_proof.tool import ToolError, completed, fast, for_each, metric, need, note, run, tool

PRODUCT_SHARE = 0.95
"""Least rate of a product through the tool, as a share of a bare loop's."""
COPY_SHARE = 0.95
LONGEST = 1.01
"""Longest step through the tool, as a multiple of a bare loop's."""
MFU = 0.45
"""Least model FLOP/s utilisation of GPT-2 training in the better framework, relative to the vendor's dense peak."""
AGAINST_OTHERS = 1.05
"""Longest step of GPT-2, as a multiple of that of another implementation."""
QUICK = (0.85, 1.15)
"""Least and largest quick ceiling, as a share of the thorough one."""
ABOVE_PEAK = 1.02
"""A measured ceiling above the vendor's peak by more than this is a mistake of one of them."""


def products(setting: Setting, framework: str) -> Outcome:
    """Compare square products in every precision with a bare loop."""
    listed = need(setting, framework)[framework]["inference"]
    found: dict[str, tuple[int, Ratio]] = {}
    for precision in ("bf16", "fp16", "tf32", "fp32", "int8", "fp64"):
        if precision in listed:
            size = 256 if setting.small else 4096 if precision in ("fp32", "fp64") else 8192
            found[precision] = (size, loops.product(framework, setting.device, precision, size, 20))
            note(precision, *found[precision])
    return judge_products(found)


def judge_products(found: dict[str, tuple[int, Ratio]]) -> Outcome:
    """The rate through the tool must be near the bare loop's in every precision."""
    rates = {name: 2 * size**3 / (each.bare_s * each.value) / 1e12 for name, (size, each) in found.items()}
    shares = {name: 1 / each.value for name, (_, each) in found.items()}
    figure = ", ".join(f"{name} {rates[name]:.3g} TFLOP/s ({shares[name]:.3f} of bare)" for name in found)
    values = {f"{name}_TFLOP_per_s": rate for name, rate in rates.items()}
    wrong = [f"{name} reaches {share:.1%} of a bare loop" for name, share in shares.items() if share < PRODUCT_SHARE]
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), values)


def copy(setting: Setting, framework: str) -> Outcome:
    """Compare a copy of large arrays with a bare loop."""
    need(setting, framework)
    elements = 2**22 if setting.small else 2**28
    return judge_copy(elements, loops.copy(framework, setting.device, elements, 20))


def judge_copy(elements: int, found: Ratio) -> Outcome:
    """The bandwidth through the tool must be near the bare loop's; read and written bytes count."""
    rate, bare = (8 * elements / seconds / 1e12 for seconds in (found.bare_s * found.value, found.bare_s))
    figure = f"{rate:.3g} TB/s, {1 / found.value:.3f} of bare ({bare:.3g} TB/s)"
    wrong = f"it reaches {1 / found.value:.1%} of a bare loop" if 1 / found.value < COPY_SHARE else ""
    return Outcome("FAIL" if wrong else "PASS", figure, wrong, {"TB_per_s": rate, "bare_TB_per_s": bare})


def loop(setting: Setting, framework: str) -> Outcome:
    """Compare the tool's loop with a bare loop over the same step, from launch-bound to large."""
    need(setting, framework)
    device, small = setting.device, setting.small
    gpt2 = {"n_layer": 2, "seq_len": 64, "batch_size": 1} if small else {"n_layer": 4, "seq_len": 512}
    precision = "fp32" if small else "bf16"
    cases: dict[str, dict[str, Any]] = {
        "gemm 64": {"problem": "gemm", "m": 64, "n": 64, "k": 64},
        "gemm": {"problem": "gemm", **({"m": 512, "n": 512, "k": 512} if small else {})},
        "attention": {"problem": "attention", **({"seq_len": 128} if small else {})},
        "gpt2": {"problem": "gpt2", "mode": "training", **gpt2},
    }
    if framework == "torch" and not small:
        cases["gpt2 compiled"] = {**cases["gpt2"], "compiled": True}
    found = {}
    for name, case in cases.items():
        bench = open_bench(framework=framework, device=device, precision=precision, **case)
        found[name] = loops.compare_same(bench, 10 if small else 30)
        note(name, found[name])
    return judge_loop(found)


def judge_loop(found: dict[str, Ratio]) -> Outcome:
    """No step may be longer than the bare loop's by more than 1%, beyond what noise explains."""
    figure = ", ".join(f"{name} {each.value:.4f}" for name, each in found.items())
    wrong = [f"{name} takes {each} times the bare loop" for name, each in found.items() if each.low > LONGEST]
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), {name: x.value for name, x in found.items()})


def gpt2(setting: Setting, mode: str) -> Outcome:
    """Measure GPT-2 in bf16 in both frameworks, PyTorch eager and compiled."""
    found: dict[str, dict[str, Any]] = {}
    missing, failed = [], []
    size = (
        ["--n-layer=2", "--seq-len=64", "--blocks=3"] if setting.small else ["--size=xl", "--blocks=20", "--seconds=15"]
    )
    for name, words in {"torch": [], "torch compiled": ["--compile"], "jax": []}.items():
        try:
            framework = name.split()[0]
            need(setting, framework)
            what = [f"--framework={framework}", "--problem=gpt2", f"--mode={mode}", "--precision=bf16"]
            (found[name],) = completed(run(setting, *what, *size, *words))
        except NotHereError as reason:
            missing.append(f"{name}: {reason}")
        except ToolError as reason:
            failed.append(f"{name}: {reason}")
    if not found and not failed:
        raise NotHereError("; ".join(missing))
    return judge_gpt2(found, failed, MFU if mode == "training" else 0.0)


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
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), {f"{k}_mfu": v for k, v in mfus.items()})


def against_huggingface(setting: Setting, mode: str) -> Outcome:
    """Compare a step of GPT-2 with that of `transformers`, in turns in one process."""
    need(setting, "torch")
    size = {"n_layer": 2, "seq_len": 64, "batch_size": 1} if setting.small else {"size": "medium", "batch_size": 8}
    bench, theirs = huggingface.steps(setting.device, mode, "fp32" if setting.small else "bf16", **size)
    data = bench.data(bench.params, loops.BATCHES)
    return judge_against(loops.compare(bench, theirs(data), data, 10 if setting.small else 30))


def judge_against(found: Ratio) -> Outcome:
    """The step must not be slower than the other's by more than 5%."""
    wrong = f"the step takes {found} times that of transformers" if found.low > AGAINST_OTHERS else ""
    return Outcome("FAIL" if wrong else "PASS", f"ours / theirs {found}", wrong, {"ratio": found.value})


def ceilings(setting: Setting, framework: str) -> Outcome:
    """Measure the ceilings and compare them with the vendor's peaks."""
    listed = need(setting, framework)[framework]["inference"]
    wanted: list[str] = ["fp32"] if setting.small else [name for name in ("bf16", "fp32", "tf32") if name in listed]
    return judge_ceilings(measured_ceilings(setting, framework, wanted, "--thorough", "--trials=2"))


def measured_ceilings(setting: Setting, framework: str, precisions: list[str], *words: str) -> list[dict[str, Any]]:
    """Return the ceilings that the command line measures in a framework."""
    where = (f"--framework={framework}", f"--device={setting.device}", f"--precision={','.join(precisions)}")
    found: list[dict[str, Any]] = tool(setting, "ceilings", *where, *words)
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
    return Outcome("FAIL" if wrong else "PASS", ", ".join(figures), "; ".join(wrong))


def quick_ceilings(setting: Setting, framework: str) -> Outcome:
    """Measure the ceilings quickly and thoroughly, and compare them; a rehearsal measures them quickly twice."""
    precision = [fast(setting, framework)]
    quick = measured_ceilings(setting, framework, precision)
    how = () if setting.small else ("--thorough", "--trials=2")
    return judge_quick(quick, measured_ceilings(setting, framework, precision, *how))


def judge_quick(quick: list[dict[str, Any]], thorough: list[dict[str, Any]]) -> Outcome:
    """Each quick ceiling must be near the thorough one."""
    values = {each["resource"]: each["value"] for each in quick}
    shares = {each["resource"]: values.get(each["resource"], 0.0) / each["value"] for each in thorough}
    figure = ", ".join(f"{resource} {share:.3f}" for resource, share in shares.items())
    low, high = QUICK
    wrong = [f"{name}: quick / thorough is {share:.3f}" for name, share in shares.items() if not low <= share <= high]
    if not shares:
        wrong.append("no ceiling was measured")
    return Outcome("FAIL" if wrong else "PASS", figure, "; ".join(wrong), shares)


PRODUCT = for_each("product", "products in {} reach 95% of a bare loop's rate in every precision", 150, products)
COPY = for_each("copy", "a copy in {} reaches 95% of a bare loop's bandwidth", 60, copy)
LOOP = for_each("loop", "a step of {} through the tool takes at most 1.01 of a bare loop's", 180, loop)
CEILINGS = for_each("ceilings", "the ceilings measured with {} do not exceed the vendor's peaks", 360, ceilings)
QUICK_CEILINGS = for_each(
    "quick-ceilings", "the ceilings measured quickly with {} are 0.85 to 1.15 of thorough ones", 300, quick_ceilings
)
GPT2 = (
    Claim(
        "gpt2-training", "GPT-2 of 1.5 B trains in bf16 at an MFU of 45% or more", 500, partial(gpt2, mode="training")
    ),
    Claim("gpt2-inference", "GPT-2 of 1.5 B runs in bf16 in each framework", 400, partial(gpt2, mode="inference")),
)
HUGGINGFACE = tuple(
    Claim(
        f"huggingface-{mode}",
        f"a step of GPT-2 {mode} takes at most 1.05 of that of transformers",
        120,
        partial(against_huggingface, mode=mode),
    )
    for mode in ("training", "inference")
)
