"""Functions given as values: measured here or in fresh processes, checked, compared, and nothing else changed."""

from __future__ import annotations

import importlib
import random
import re
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import benchmarker
from benchmarker import UserError
from benchmarker.comparing.formatting import ONE_PROCESS

QUICK = {"seconds": 0.3, "preheat": False, "warmup_steps": 1, "cache": "hot", "progress": False}


def draw(n=64):
    return np.random.standard_normal((n, n))


def once(x):
    return x @ x


def thrice(x):
    return [x @ x, x @ x, x @ x][0]


@pytest.mark.slow
def test_a_true_factor_is_seen_and_the_verdict_is_provisional():
    def slow(x):
        time.sleep(0.03)  # beside other work, each sleep is some milliseconds longer
        return x + 1

    def fast(x):
        time.sleep(0.01)
        return x + 1

    result = benchmarker.ab(slow, fast, inputs=draw, **(QUICK | {"seconds": 2}))
    (comparison,) = result.family.comparisons
    assert (result.verdict, comparison.method, result.fresh) == ("faster", "paired by block", False)
    assert comparison.provisional is not None
    assert comparison.provisional.startswith(ONE_PROCESS)
    assert 1 / 4.5 < comparison.ratio < 1 / 2
    assert comparison.low <= comparison.ratio <= comparison.high
    text = str(result)
    assert re.match(r"fast is .*x as fast as slow .*\(provisional\)", text)
    assert "pairs of blocks" in text
    assert text.count(ONE_PROCESS) == 1
    assert text.endswith("measured in this process")
    assert [record.check and record.check.against for record in result.records] == [None, "slow in fp64"]
    assert all(record.design.in_process and record.memory is None for record in result.records)
    assert list(result.to_pandas()["verdict"]) == ["faster"]
    assert result.to_dict()["family"]["comparisons"][0]["ratio"] == comparison.ratio


@pytest.mark.slow
def test_equal_functions_are_not_called_different():
    def rests(x):
        time.sleep(0.002)
        return x + 1

    verdicts = [benchmarker.ab(rests, rests, inputs=draw, **QUICK).verdict for _ in range(3)]
    # Each is wrong with a probability of at most 5%, two of three with 0.7%.
    assert verdicts.count("faster") + verdicts.count("slower") <= 1


@pytest.mark.slow
def test_a_list_gives_a_row_of_each_value_and_every_function_is_compared_with_the_first():
    def dot(x):
        return np.dot(x, x)

    result = benchmarker.measure(once, thrice, dot, inputs=draw, n=[16, 32], **QUICK)
    rows = [(each.name, each.baseline, each.contender) for each in result.family.comparisons]
    assert sorted(rows) == [(f"n={n}", "once", other) for n in (16, 32) for other in ("dot", "thrice")]
    html = result._repr_html_()
    distributions = [f"{what}-{at}" for at in (0, 1) for what in ("density", "quantiles")]
    assert [each.key for each in result.figures] == ["ratios", "blocks", *distributions]
    assert html.count("<svg") == 2
    ratios, blocks, *_ = result.figures
    assert len(ratios.rows) == 4
    assert [len(mark.at) for mark in blocks.marks] == [2, 2, 2]  # of each function, a box for each size
    assert not re.search(r"https?:|src=|href=|<script|<link", html)
    with pytest.raises(UserError, match="4 comparisons"):
        _ = result.verdict


def test_one_function_has_times_and_no_verdict():
    result = benchmarker.measure(lambda x: x + 1, inputs=draw, n=[16, 32], precision="fp64", **QUICK)
    assert list(result.to_pandas()["n"]) == [16, 32]
    assert {record.case.precision for record in result.records} == {"fp64"}
    assert "in-process:lambda n=16" in str(result)
    with pytest.raises(UserError, match="0 comparisons"):
        _ = result.verdict


@pytest.mark.parametrize(
    ("functions", "options", "text"),
    [
        ((once,), {"secods": 3}, "no setting of in-process is named 'secods'; did you mean seconds"),
        ((once,), {"threads": 1}, "threads cannot be set in a process that runs"),
        ((once,), {"inputs": None}, "once takes arguments; give inputs="),
        ((once,), {"inputs": 3}, "inputs is no function, but 3"),
        ((once,), {"inputs": lambda n=0: 1 / n}, "inputs failed: ZeroDivisionError: division by zero"),
        ((once,), {"inputs": lambda k: k}, "inputs takes k, which has no default"),
        (
            (once, lambda x: x @ x + 1),
            {},
            r"lambda: wrong result: .* \(relative, against once in fp64\)",
        ),
        ((once,), {"reference": lambda x: x}, r"once: wrong result: .* against reference in fp64"),
        ((lambda x: x.nothing,), {}, "lambda: AttributeError: .*nothing"),
        (
            (lambda x: torch.exp(x) + 1, lambda x: jnp.exp(x) + 1),
            {},
            "two frameworks: lambda torch, lambda_2 jax",
        ),
        ((once,), {"fresh": True}, "fresh=True: "),
        ((), {}, "no function is given"),
    ],
)
def test_errors_are_exceptions_of_one_line(functions, options, text):
    with pytest.raises(UserError, match=text) as error:
        benchmarker.measure(*functions, **({"inputs": lambda n=8: draw(n)} | QUICK | options))
    assert "\n" not in str(error.value)


def test_functions_and_configurations_are_not_mixed():
    with pytest.raises(UserError, match="two functions, or two mappings"):
        benchmarker.ab(once, {"m": 1})
    with pytest.raises(UserError, match="belong to functions"):
        benchmarker.ab({"m": 1}, {"m": 2}, problem="gemm", fresh=True)


def test_what_writes_to_its_inputs_is_found():
    def adds(x):
        x += 1
        return x

    with pytest.raises(UserError, match=r"adds: wrong result.*writes to its inputs"):
        benchmarker.measure(adds, inputs=draw, **QUICK)


@pytest.mark.parametrize(
    ("framework", "double", "inputs"),
    [
        ("torch", lambda x: torch.add(x, x), lambda n=64: torch.randn(n, n)),
        ("torch", torch.nn.Linear(64, 8), lambda n=64: torch.randn(n, n)),
        ("jax", lambda x: jnp.add(x, x), lambda n=64, seed=0: jax.random.normal(jax.random.key(seed), (n, n))),
        ("jax", jax.jit(lambda x: x + x), draw),
        ("numpy", lambda x: x + x, draw),
    ],
)
def test_each_framework_is_seen_and_left_as_it_was(framework, double, inputs):
    torch.set_float32_matmul_precision("high")
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), jax.config.jax_enable_x64)
    matmul = jax.config.jax_default_matmul_precision
    threads = {thread.ident for thread in threading.enumerate()}
    try:
        result = benchmarker.measure(double, double, inputs=inputs, **QUICK)
        assert {record.case.framework for record in result.records} == {framework}
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1].tolist(), random.getstate(), jax.config.jax_enable_x64) == before[1:]
        assert jax.config.jax_default_matmul_precision == matmul
        assert {thread.ident for thread in threading.enumerate()} <= threads
        if isinstance(double, torch.nn.Module):
            assert double.weight.dtype == torch.float32
    finally:
        torch.set_float32_matmul_precision("highest")


def test_records_are_stored_where_asked_and_compare_says_that_they_are_provisional(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = benchmarker.ab(once, thrice, inputs=draw, fresh=False, **QUICK)
    assert list(tmp_path.iterdir()) == []
    result = benchmarker.ab(once, thrice, inputs=draw, fresh=False, output="kept", **QUICK)
    (again,) = benchmarker.compare("kept").family.comparisons
    (comparison,) = result.family.comparisons
    assert (again.ratio, again.low, again.verdict) == (comparison.ratio, comparison.low, comparison.verdict)
    assert again.provisional.startswith(ONE_PROCESS)
    assert command("validate", "kept").stdout == "2 valid, 0 faulty\n"
    assert command("compare", "kept", "--strict").returncode == 3


@pytest.mark.slow
def test_functions_of_a_file_are_measured_in_fresh_processes(tmp_path, monkeypatch):
    (tmp_path / "sorts_of_a_file.py").write_text(
        "import numpy as np\ndef inputs(n=8): return np.random.standard_normal(n)\n"
        "def one(x): return np.sort(x)\ndef two(x): return np.array(sorted(x))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sorts = importlib.import_module("sorts_of_a_file")
    options = {"seconds": 0.05, "preheat": False, "warmup_steps": 1, "progress": False}
    result = benchmarker.ab(sorts.one, sorts.two, inputs=sorts.inputs, n=16, max_rounds=2, **options)
    assert result.fresh
    assert [record.design.in_process for record in result.records] == [False] * 4
    assert {record.source.path for record in result.records} == {"sorts_of_a_file.py"}
    assert "measured in fresh processes" in str(result)
    assert not (tmp_path / "results").exists()
    here = benchmarker.measure(sorts.one, n=[8, 16], fresh=False, **options)
    assert [record.design.in_process for record in here.records] == [True, True]
    alone = benchmarker.measure(sorts.two, **options)
    assert (alone.fresh, len(alone.records)) == (True, 1)
    with pytest.raises(UserError, match="seven"):
        benchmarker.measure(lambda x: x.seven, inputs=draw, output=tmp_path / "kept", **options)
    assert list((tmp_path / "kept").glob("2*")) == []
    with pytest.raises(UserError, match=r"fresh=True: inputs is not that of sorts_of_a_file\.py"):
        benchmarker.ab(sorts.one, sorts.two, inputs=draw, fresh=True, **options)


def test_an_interrupt_says_what_is_lost_and_leaves_no_thread():
    calls = []

    def interrupted(x):
        calls.append(1)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return x + 1

    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt, match=r"^\[1/1\] interrupted: .* stage \w+, its blocks are lost"):
        benchmarker.measure(interrupted, inputs=draw, **QUICK)
    assert threading.active_count() == threads


def test_an_interrupt_has_the_rows_that_were_complete():
    def interrupted(x):
        if len(x) == 16:
            raise KeyboardInterrupt
        return x + 1

    with pytest.raises(KeyboardInterrupt, match=r"^\[2/2\] interrupted: ") as caught:
        benchmarker.measure(interrupted, inputs=draw, n=[8, 16], **QUICK)
    results = caught.value.results
    assert [record.case.params["n"] for record in results.records] == [8]
    assert "interrupted" in repr(results)


def test_progress_is_told_where_somebody_watches(capsys, monkeypatch):
    options = {name: value for name, value in QUICK.items() if name != "progress"}
    benchmarker.measure(lambda x: x, inputs=draw, **options)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    benchmarker.measure(lambda x: x + 1, inputs=draw, **options)
    assert re.fullmatch(r"\[1/1\] lambda: done in \d+\.\d s\n", capsys.readouterr().err)


class Shell:
    """As much of a shell of IPython as the extension uses."""

    def __init__(self, **names) -> None:
        self.user_ns = {"__name__": "__main__", "np": np, "torch": torch, **names}
        self.magics = {}
        benchmarker.load_ipython_extension(self)

    def register_magic_function(self, function, kind, name) -> None:
        self.magics[kind, name] = function

    def measure(self, line: str, cell: str) -> benchmarker.FunctionResults:
        return self.magics["cell", "measure"](f"--seconds=0.1 --preheat=false --cache=hot {line}", cell)


@pytest.mark.parametrize(
    ("line", "cell", "framework", "precision"),
    [
        ("", "x @ x", "numpy", "fp64"),
        ("--precision=fp32 y = np.abs(x)", "z = y + 1\nz *= 2", "numpy", "fp32"),
        ("", "torch.exp(t)", "torch", "bf16"),
        ("", "k = np.ones(3)\nk", "numpy", "fp32"),
    ],
)
def test_a_cell_is_a_step_and_the_namespace_stays(line, cell, framework, precision):
    shell = Shell(x=np.eye(8), t=torch.ones(8, dtype=torch.bfloat16))
    before = dict(shell.user_ns)
    (record,) = shell.measure(line, cell).records
    assert (record.case.framework, record.case.precision) == (framework, precision)
    assert [(name, id(value)) for name, value in shell.user_ns.items()] == [
        (name, id(value)) for name, value in before.items()
    ]
    assert (shell.user_ns["x"] == np.eye(8)).all()


def test_a_cell_is_refused_in_one_line():
    shell = Shell(x=np.eye(8))
    with pytest.raises(UserError, match="let its last line be a value") as caught:
        shell.measure("", "import os")
    assert caught.value._render_traceback_() == [f"UserError: {caught.value}"]
    with pytest.raises(UserError, match="no setting of in-process is named 'presicion'; did you mean precision"):
        shell.measure("--presicion=fp32", "x")
    with pytest.raises(UserError, match="writes to its inputs"):
        shell.measure("", "x += 1")
