"""On this device nothing is called different from itself, a true 2% is found, a duet is fair."""

from typing import Any

import pytest
from support.gpu import Outcome, Tool, completed, metric

TRUE_RATIO = 1.02
TOLERANCE = 0.005
"""How far the estimate of a true 2% may be from it, beyond what its interval covers."""
FAIR = 0.02
"""A case may take this much longer or shorter in a duet than alone."""


def _words(tool: Tool) -> list[str]:
    framework = tool.framework()
    return [f"--framework={framework}", f"--device={tool.device}", "--problem=stream", "--blocks=40", "--seconds=2"]


def _size(tool: Tool) -> int:
    return 2**22 if tool.small else 2**27


@pytest.mark.gpu(limit_s=150)
def test_aa(tool: Tool) -> None:
    """A case is not called different from itself."""
    n = f"--n={_size(tool)}"
    tool.judge(judge_same(tool.command("ab", *_words(tool), "--max-rounds=11", f"--a={n}", f"--b={n} --seed=1")))


def judge_same(found: dict[str, Any]) -> Outcome:
    """The verdict must not be that one is faster."""
    (each,) = found["family"]["comparisons"]
    wrong = ["the same case is called different"] if each["verdict"] in ("slower", "faster") else []
    return Outcome(_figure(each), wrong, {"ratio": each["ratio"]})


@pytest.mark.gpu(limit_s=240)
def test_two_percent(tool: Tool) -> None:
    """A true difference of 2% is found."""
    n = _size(tool)
    sides = (f"--a=--n={n}", f"--b=--n={round(n * TRUE_RATIO)}")
    tool.judge(judge_two_percent(tool.command("ab", *_words(tool), "--delta=1%", *sides)))


def judge_two_percent(found: dict[str, Any]) -> Outcome:
    """B must be found slower, by 2%."""
    (each,) = found["family"]["comparisons"]
    wrong = []
    if each["verdict"] != "slower":
        wrong.append(f"a true difference of 2% is {each['verdict']}")
    if each["low"] is not None and not each["low"] - TOLERANCE <= TRUE_RATIO <= each["high"] + TOLERANCE:
        wrong.append("the interval does not contain 1.02")
    return Outcome(_figure(each), wrong, {"ratio": each["ratio"]})


def _figure(each: dict[str, Any]) -> str:
    interval = f" [{each['low']:.4f}, {each['high']:.4f}]" if each["low"] is not None else ""
    return f"B/A {each['ratio']:.4f}{interval}, {each['verdict']} after {each['rounds']} rounds"


@pytest.mark.gpu(limit_s=150)
def test_duet(tool: Tool) -> None:
    """A case takes as long in a duet as alone."""
    framework = tool.framework()
    precision = tool.fast_precision(framework)
    product = f"--problem=gemm --precision={precision}"
    common = (f"--framework={framework}", "--blocks=40", "--seconds=4")
    alone = completed(tool.run(*common, *product.split(), "--trials=3"))
    words = (f"--device={tool.device}", *common, "--design=duet", "--max-rounds=3", "--results=duet")
    tool.command("ab", *words, f"--a={product}", "--b=--problem=attention " + f"--precision={precision}")
    together = completed(tool.command("show", "duet"))
    tool.judge(judge_duet(alone, [each for each in together if each["case"]["problem"] == "gemm"]))


def judge_duet(alone: list[dict[str, Any]], together: list[dict[str, Any]]) -> Outcome:
    """The product must take as long beside another workload as alone."""
    times = [sorted(metric(x, "step_time_median_s") or 0.0 for x in side) for side in (alone, together)]
    first, second = (side[len(side) // 2] for side in times)
    figure = f"{second / first - 1:+.1%} beside another workload"
    wrong = ["the workloads disturb each other"] if abs(second / first - 1) > FAIR else []
    return Outcome(figure, wrong, {"ratio": second / first})
