"""What is listed is right on the device, and TensorFloat-32 is used only where it is requested."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.gpu import FRAMEWORKS, Outcome, Tool, completed

PROBLEMS = ("gemm", "stream", "attention", "gpt2")
VARIANTS = ("impl", "op")
"""Parameters that select an implementation."""
AT_ONCE = max(4, (os.cpu_count() or 1) // 2)
"""Checks that run at the same time: most of a check is starting a process."""
FP32_ERROR = 2.0**-18
"""Largest error of a product in fp32 relative to its largest element; one TensorFloat-32 rounding is 2**-11."""
TF32_ERRORS = (2.0**-15, 2.0**-8)
"""Errors between which a product in tf32 must be."""


@pytest.mark.gpu(limit_s=400)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_right(tool: Tool, framework: str) -> None:
    """Every problem, mode and precision that is listed for {framework} is right on the device."""
    tool.precisions(framework)
    asked = []
    for problem in PROBLEMS:
        described = tool.command("describe", problem)
        able = [x for x in described["frameworks"] if (x["framework"], x["device"]) == (framework, tool.device)]
        precisions = dict.fromkeys(name for each in able for name in each["precisions"])
        variants = next((x for x in described["parameters"] if x["name"] in VARIANTS), {"option": "", "choices": [""]})
        asked += [
            (problem, name, f"{variants['option']}={choice}" if choice else "")
            for name in precisions
            for choice in variants["choices"]
            if not tool.small or name in ("fp32", "bf16")
        ]

    def check(problem: str, precision: str, variant: str) -> dict[str, Any] | None:
        words = [f"--problem={problem}", f"--framework={framework}", f"--precision={precision}", *variant.split()]
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # several checks share the device's memory
        try:
            report: dict[str, Any] = tool.command("check", f"--device={tool.device}", *words, **shared)
        except pytest.fail.Exception as error:
            if "does not support" in str(error):  # the tool refuses this variant, for instance --impl=fused in fp64
                return None
            raise
        return report

    with ThreadPoolExecutor(1 if tool.small else AT_ONCE) as pool:
        reports = list(pool.map(lambda case: check(*case), asked))
    tool.judge(judge_right({case: report for case, report in zip(asked, reports, strict=True) if report}))


def judge_right(found: dict[tuple[str, str, str], dict[str, Any]]) -> Outcome:
    """Every check must be ok, and at least one must have been made for each problem."""
    checks = [(*key, each) for key, report in found.items() for each in report["checks"]]
    wrong = [
        f"{problem} {each['mode']} {precision} {variant}: {each['note'] or each['check']}"
        for problem, precision, variant, each in checks
        if not each["ok"]
    ]
    wrong += [
        f"{problem} {precision} {variant}: the losses do not fall, or differ"
        for (problem, precision, variant), report in found.items()
        if not all(curve["falls"] and curve["apart"] <= curve["bound"] for curve in report["curves"])
    ]
    if missing := set(PROBLEMS) - {problem for problem, *_ in found}:
        wrong.append(f"nothing is listed for {', '.join(sorted(missing))}")
    shares = [
        each["check"]["error"] / each["check"]["bound"]
        for *_, each in checks
        if each["check"] and each["check"]["bound"]
    ]
    figure = f"{len(checks)} checks" + (f", the largest error is {max(shares):.0%} of its bound" if shares else "")
    return Outcome(figure, wrong[:3])


@pytest.mark.gpu(limit_s=90)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tf32(tool: Tool, framework: str) -> None:
    """{framework} uses TensorFloat-32 only where it is requested."""
    if "tf32" not in tool.precisions(framework)["inference"]:
        pytest.skip(f"{framework} lists no tf32 on {tool.device}")
    errors = {}
    for precision in ("fp32", "tf32"):
        words = ("--problem=gemm", f"--framework={framework}", f"--precision={precision}")
        found = tool.command("check", f"--device={tool.device}", *words)
        errors[precision] = found["checks"][0]["check"]["error"]
    words = (f"--framework={framework}", "--problem=gemm", "--blocks=5")
    fast = {name: completed(tool.run(*words, f"--precision={name}"))[0] for name in ("fp32", "tf32")}
    times = {name: fast[name]["metrics"]["step_time_median_s"]["value"] for name in fast}
    tool.judge(judge_tf32(errors, times["fp32"] / times["tf32"]))


def judge_tf32(errors: dict[str, float], speedup: float) -> Outcome:
    """The error in fp32 must be that of fp32, in tf32 that of ten bits, and tf32 must be faster."""
    figure = f"error {errors['fp32']:.1e} in fp32, {errors['tf32']:.1e} in tf32; tf32 is {speedup:.1f}x as fast"
    values = {"error_fp32": errors["fp32"], "error_tf32": errors["tf32"], "speedup": speedup}
    wrong = []
    if errors["fp32"] > FP32_ERROR:
        wrong.append("fp32 is less exact than fp32 is: TensorFloat-32 was used without being requested")
    if not TF32_ERRORS[0] < errors["tf32"] < TF32_ERRORS[1]:
        wrong.append("the error in tf32 is not that of TensorFloat-32")
    if speedup < 1.5:
        wrong.append("tf32 is hardly faster than fp32")
    return Outcome(figure, wrong, values)
