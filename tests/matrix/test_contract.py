"""What is listed runs: every framework × problem × mode × precision × implementation, on the CPU, at a tiny size."""

import json
import re

import pytest
from support.checks import ability_of, checked

from benchmarker import UserError
from benchmarker.api.case import CaseRequest
from benchmarker.hooks import registry
from benchmarker.planning.cases import choose_device, make_case, supported_precisions
from benchmarker.running.check import check_modes, compare_losses

PAIRS = [tuple(address.split(".")[1:]) for address in registry.registered("workload")]  # (problem, framework)
WAYS = {
    "attention": ("impl", ("einsum", "matmul", "fused")),
    "conv": ("layout", ("channels_first", "channels_last")),
    "bert": ("impl", ("einsum", "matmul", "fused")),
    "dit": ("impl", ("einsum", "matmul", "fused")),
    "gpt2": ("impl", ("einsum", "matmul", "fused")),
    "llama": ("impl", ("einsum", "matmul", "fused")),
    "cg": ("format", ("auto", "csr", "ell")),
    "lu": ("factor", ("same", "fp32")),
    "moe": ("dispatch", ("grouped", "capacity")),
    "spmv": ("format", ("auto", "csr", "ell")),
    "resnet": ("layout", ("channels_first", "channels_last")),
    "stream": ("op", ("triad", "copy")),
    "vit": ("impl", ("einsum", "matmul", "fused")),
}
"""The parameter that says how it is done, and its values."""
TINY = {
    "gemm": ("--m=9", "--n=17", "--k=33", "--batch-size=2", "--transpose-a", "--transpose-b"),
    "attention": ("--batch-size=2", "--heads=3", "--seq-len=16", "--head-dim=8"),
    "lu": ("--n=33",),
    "spmv": ("--nx=9", "--ny=8", "--nz=7"),
    "stencil": ("--nx=9", "--ny=8", "--nz=7"),
    "conv": ("--batch-size=2", "--in-channels=4", "--out-channels=6", "--image-size=9"),
    "lstm": ("--hidden-size=12", "--input-size=10", "--seq-len=5", "--batch-size=2"),
    "resnet": ("--size=18", "--stages=1", "--stage-blocks=1", "--width=4", "--image-size=16", "--batch-size=2"),
    "stream": ("--n=1001",),
    "llama": (
        "--n-layer=1",
        "--d-model=24",
        "--n-head=4",
        "--n-kv-head=2",
        "--d-ff=20",
        "--vocab-size=31",
        "--seq-len=8",
        "--batch-size=2",
    ),
    "moe": (
        "--n-layer=1",
        "--d-model=24",
        "--n-head=4",
        "--n-kv-head=2",
        "--d-ff=20",
        "--n-expert=5",
        "--vocab-size=31",
        "--seq-len=8",
        "--batch-size=2",
    ),
    "mlp": ("--width=12", "--layers=2", "--batch-size=5"),
    "cg": ("--nx=9", "--ny=8", "--nz=7", "--iterations=3"),
    "dit": ("--n-layer=1", "--d-model=12", "--n-head=3", "--patch-size=2", "--image-size=48", "--classes=5"),
    "dlrm": ("--tables=3", "--rows=20", "--embedding-dim=6", "--bottom-mlp=9", "--top-mlp=11-7", "--batch-size=5"),
    "fft": ("--nx=9", "--ny=8", "--nz=5", "--batch-size=2"),
    "gpt2": ("--n-layer=1", "--d-model=12", "--n-head=3", "--vocab-size=31", "--seq-len=8", "--batch-size=2"),
    "bert": ("--n-layer=1", "--d-model=12", "--n-head=3", "--vocab-size=31", "--seq-len=8", "--batch-size=2"),
    "vit": ("--n-layer=1", "--d-model=12", "--n-head=3", "--patch-size=2", "--image-size=6", "--classes=5"),
}
QUICK = [pair for pair in PAIRS if pair[0] in ("attention", "cg", "conv", "gemm", "stream")]
"""Problems on which each change is tried; the slow test has all."""
OF_TOKENS = {"attention", "bert", "gpt2", "llama", "lstm", "moe"}
"""Problems whose samples are sequences of tokens."""


def case_maker(problem, framework):
    """What a pair lists on the CPU, and a function that makes its case."""
    made = registry.load([f"problem.{problem}"]).hook.define_problem()
    ability = ability_of(problem, framework)

    def make(mode, precision, choice):
        asked = CaseRequest(problem=problem, mode=mode, precision=precision, device="cpu", params=choice)
        try:
            return make_case(asked, made, framework, ability)
        except UserError as refused:  # what is listed runs, but for the exclusions that are listed too
            assert re.search(r"does not support --(impl|factor)=\w+ with --precision", str(refused))
            return None

    device = choose_device(framework, ability.info, "cpu")
    modes = {mode: supported_precisions(ability.support, device, mode) for mode in ability.support.precisions}
    parameter, ways = WAYS.get(problem, ("", ()))
    return modes, [{parameter: way} for way in ability.support.choices.get(parameter, ways)] or [{}], make


@pytest.mark.parametrize(("problem", "framework"), QUICK, ids=map(".".join, QUICK))
def test_every_mode_is_right_in_fp32(problem, framework):
    """A part of the next test."""
    modes, choices, make = case_maker(problem, framework)
    checks, _ = checked(make(next(iter(modes)), "fp32", choices[0]), list(modes))
    assert list(checks) == list(modes)
    assert all(check.ok for check in checks.values()), checks


@pytest.mark.parametrize("framework", ["jax", "numpy", "torch"])
def test_a_worker_checks_the_same(framework):
    modes, choices, make = case_maker("gemm", framework)
    case = make("inference", "fp32", choices[0])
    here, _ = checked(case, list(modes))
    findings = check_modes(case, list(modes), 0, {}, {})
    assert all(finding.ok for finding in findings), findings
    assert {finding.mode: finding.check.bound for finding in findings} == {mode: here[mode].bound for mode in here}


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "framework"), PAIRS, ids=map(".".join, PAIRS))
def test_all_that_is_listed_is_right(problem, framework):
    """In each precision: against the reference, and where it trains, the loss falls."""
    modes, choices, make = case_maker(problem, framework)
    assert modes
    for precision in sorted({precision for precisions in modes.values() for precision in precisions}):
        expected = [mode for mode in modes if precision in modes[mode]]
        # The last implementation, the framework's own if it can; in fp32 also the others, in their fullest single step.
        *others, last = [case for choice in choices if (case := make(expected[0], precision, choice))]
        fullest = "forward_backward" if "forward_backward" in expected else expected[-1]
        for case in others if precision == "fp32" else []:
            checks, _ = checked(case, [fullest])
            assert checks[fullest].ok, checks
        checks, losses = checked(last, expected, 40)
        assert list(checks) == expected
        assert all(check.ok for check in checks.values()), (precision, checks)
        assert bool(losses) == ("training" in expected)
        assert not losses or compare_losses({framework: losses}, precision)[0].falls


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "framework"), PAIRS, ids=map(".".join, PAIRS))
def test_the_fullest_mode_is_measured_and_recorded(cli, problem, framework):
    modes, choices, _ = case_maker(problem, framework)
    *_, mode = modes
    choice = [f"--{name}={value}" for name, value in choices[0].items()]
    words = (f"--problem={problem}", f"--framework={framework}", f"--mode={mode}", *choice, *TINY.get(problem, ()))
    done = cli("run", *words, "--blocks=3", "--threads=1", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["status"] == "ok"
    assert len(record["blocks"]["duration_ns"]) == 3
    assert record["cost"]["bytes"] > 0
    assert record["software"]["threads"] == 1
    assert record["types"]["lowest"] == "fp32"
    assert record["metrics"]["samples_per_s"]["value"] > 0
    assert (record["metrics"]["tokens_per_s"]["value"] is not None) == (problem in OF_TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["gemm", "gpt2"])
def test_compiled_steps_of_pytorch_are_right(cli, problem):
    """TorchInductor builds C++ here, which takes a while; that of GPT-2 has attention in it."""
    done = cli("check", f"--problem={problem}", "--framework=torch", "--compile", "--json")
    found = json.loads(done.stdout)
    assert found["ok"], done.stdout
    assert {finding["mode"] for finding in found["checks"]} >= {"inference", "forward_backward"}
