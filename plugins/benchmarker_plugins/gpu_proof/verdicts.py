"""Claims about verdicts on this device: nothing is called different from itself, a true 2% is found, a duet is fair."""

from typing import Any

from benchmarker import Claim, Outcome, Setting
from benchmarker_plugins.gpu_proof.tool import completed, fast, metric, present, run, tool

TRUE_RATIO = 1.02
TOLERANCE = 0.005
"""How far the estimate of a true 2% may be from it, beyond what its interval covers."""
FAIR = 0.02
"""A case may take this much longer or shorter in a duet than alone."""


def _words(setting: Setting) -> list[str]:
    framework = present(setting)[0]
    return [f"--framework={framework}", f"--device={setting.device}", "--problem=stream", "--blocks=40", "--seconds=2"]


def _size(setting: Setting) -> int:
    return 2**22 if setting.small else 2**28


def same(setting: Setting) -> Outcome:
    """Compare a case with itself: an A/A test."""
    n = f"--n={_size(setting)}"
    return judge_same(tool(setting, "ab", *_words(setting), "--max-rounds=11", f"--a={n}", f"--b={n} --seed=1"))


def judge_same(found: dict[str, Any]) -> Outcome:
    """The verdict must not be that one is faster."""
    (each,) = found["family"]["comparisons"]
    wrong = "the same case is called different" if each["verdict"] in ("slower", "faster") else ""
    return Outcome("FAIL" if wrong else "PASS", _figure(each), wrong, {"ratio": each["ratio"]})


def two_percent(setting: Setting) -> Outcome:
    """Compare a memory-bound case with one that has 2% more elements."""
    n = _size(setting)
    sides = (f"--a=--n={n}", f"--b=--n={round(n * TRUE_RATIO)}")
    return judge_two_percent(tool(setting, "ab", *_words(setting), "--delta=1%", *sides))


def judge_two_percent(found: dict[str, Any]) -> Outcome:
    """B must be found slower, by 2%."""
    (each,) = found["family"]["comparisons"]
    wrong = []
    if each["verdict"] != "slower":
        wrong.append(f"a true difference of 2% is {each['verdict']}")
    if each["low"] is not None and not each["low"] - TOLERANCE <= TRUE_RATIO <= each["high"] + TOLERANCE:
        wrong.append("the interval does not contain 1.02")
    return Outcome("FAIL" if wrong else "PASS", _figure(each), "; ".join(wrong), {"ratio": each["ratio"]})


def _figure(each: dict[str, Any]) -> str:
    interval = f" [{each['low']:.4f}, {each['high']:.4f}]" if each["low"] is not None else ""
    return f"B/A {each['ratio']:.4f}{interval}, {each['verdict']} after {each['rounds']} rounds"


def duet(setting: Setting) -> Outcome:
    """Measure a product alone and beside a copy in one process."""
    framework = present(setting)[0]
    precision = fast(setting, framework)
    product = f"--problem=gemm --precision={precision}"
    common = (f"--framework={framework}", "--blocks=40", "--seconds=4")
    alone = completed(run(setting, *common, *product.split(), "--trials=3"))
    words = (f"--device={setting.device}", *common, "--design=duet", "--max-rounds=3", "--results=duet")
    tool(setting, "ab", *words, f"--a={product}", "--b=--problem=attention " + f"--precision={precision}")
    together = completed(tool(setting, "show", "duet"))
    return judge_duet(alone, [each for each in together if each["case"]["problem"] == "gemm"])


def judge_duet(alone: list[dict[str, Any]], together: list[dict[str, Any]]) -> Outcome:
    """The product must take as long beside another workload as alone."""
    times = [sorted(metric(x, "step_time_median_s") or 0.0 for x in side) for side in (alone, together)]
    first, second = (side[len(side) // 2] for side in times)
    figure = f"{second / first - 1:+.1%} beside another workload"
    wrong = "the workloads disturb each other" if abs(second / first - 1) > FAIR else ""
    return Outcome("FAIL" if wrong else "PASS", figure, wrong, {"ratio": second / first})


SAME = Claim("aa", "a case is not called different from itself", 150, same)
TWO_PERCENT = Claim("two-percent", "a true difference of 2% is found", 240, two_percent)
DUET = Claim("duet", "a case takes as long in a duet as alone", 150, duet)
