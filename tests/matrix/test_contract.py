"""What is listed runs: every framework × problem × mode × precision × implementation, on the CPU, at a tiny size."""

import json
import re
from typing import Any
from unittest.mock import Mock

import pytest
from support.checks import ability_of, checked

from benchmarker import UserError
from benchmarker.api.case import CaseRequest, Measuring
from benchmarker.hooks import registry
from benchmarker.hooks.metrics import load_metrics
from benchmarker.planning.cases import choose_device, make_case, supported_precisions
from benchmarker.planning.ceiling_search import Survey
from benchmarker.running import ceilings
from benchmarker.running.check import check_modes, compare_losses

PAIRS = [tuple(address.split(".")[1:]) for address in registry.registered("workload")]  # (problem, framework)
PROBLEMS = {framework: [problem for problem, name in PAIRS if name == framework] for _, framework in PAIRS}
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
    "transfer": ("direction", ("to_device", "from_device", "round_trip")),
    "vit": ("impl", ("einsum", "matmul", "fused")),
}
"""The parameter that says how it is done, and its values."""
TINY: dict[str, dict[str, Any]] = {
    "gemm": {"m": 9, "n": 17, "k": 33, "batch_size": 2, "transpose_a": True, "transpose_b": True},
    "attention": {"batch_size": 2, "heads": 3, "seq_len": 16, "head_dim": 8},
    "lu": {"n": 33},
    "spmv": {"nx": 9, "ny": 8, "nz": 7},
    "stencil": {"nx": 9, "ny": 8, "nz": 7},
    "conv": {"batch_size": 2, "in_channels": 4, "out_channels": 6, "image_size": 9},
    "lstm": {"hidden_size": 12, "input_size": 10, "seq_len": 5, "batch_size": 2},
    "resnet": {"size": "18", "stages": 1, "stage_blocks": 1, "width": 4, "image_size": 16, "batch_size": 2},
    "stream": {"n": 1001},
    "launch": {"kernels": 3},
    "latency": {"bytes": 2368, "loads": 100},
    "transfer": {"bytes": 4004},
    "llama": {
        "n_layer": 1,
        "d_model": 24,
        "n_head": 4,
        "n_kv_head": 2,
        "d_ff": 20,
        "vocab_size": 31,
        "seq_len": 8,
        "batch_size": 2,
    },
    "moe": {
        "n_layer": 1,
        "d_model": 24,
        "n_head": 4,
        "n_kv_head": 2,
        "d_ff": 20,
        "n_expert": 5,
        "vocab_size": 31,
        "seq_len": 8,
        "batch_size": 2,
    },
    "mlp": {"width": 12, "layers": 2, "batch_size": 5},
    "cg": {"nx": 9, "ny": 8, "nz": 7, "iterations": 3},
    "dit": {"n_layer": 1, "d_model": 12, "n_head": 3, "patch_size": 2, "image_size": 48, "classes": 5},
    "dlrm": {"tables": 3, "rows": 20, "embedding_dim": 6, "bottom_mlp": "9", "top_mlp": "11-7", "batch_size": 5},
    "fft": {"nx": 9, "ny": 8, "nz": 5, "batch_size": 2},
    "gpt2": {"n_layer": 1, "d_model": 12, "n_head": 3, "vocab_size": 31, "seq_len": 8, "batch_size": 2},
    "bert": {"n_layer": 1, "d_model": 12, "n_head": 3, "vocab_size": 31, "seq_len": 8, "batch_size": 2},
    "vit": {"n_layer": 1, "d_model": 12, "n_head": 3, "patch_size": 2, "image_size": 6, "classes": 5},
}
QUICK = [pair for pair in PAIRS if pair[0] in ("attention", "cg", "conv", "gemm", "stream")]
"""Problems on which each change is tried; the slow test has all."""
PARTS = 5
"""Tests into which the problems of a framework are divided: each is far from the limit of a test."""
OF_TOKENS = {"attention", "bert", "gpt2", "llama", "lstm", "moe"}
"""Problems whose samples are sequences of tokens."""


def case_maker(problem, framework):
    """What a pair lists on the CPU, and a function that makes its case."""
    made = registry.problem(problem)
    ability = ability_of(problem, framework)

    def make(mode, precision, choice, **options):
        asked = CaseRequest(problem=problem, mode=mode, precision=precision, device="cpu", params=choice, **options)
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
@pytest.mark.parametrize(
    ("framework", "part"),
    [(name, part) for name, problems in sorted(PROBLEMS.items()) for part in range(PARTS) if problems[part::PARTS]],
)
def test_the_fullest_mode_of_each_problem_is_measured_and_recorded(framework, part, monkeypatch):
    """A worker measures some one after the other, checked as XLA optimises them, unlike in other tests of all."""
    monkeypatch.setattr(ceilings, "SURVEY_TIMEOUT_S", 600.0)
    cases = []
    for problem in PROBLEMS[framework][part::PARTS]:
        modes, choices, make = case_maker(problem, framework)
        *_, mode = modes
        size = {**choices[0], **TINY.get(problem, {})}
        cases.append(make(mode, "fp32", size, threads=1, measuring=Measuring(blocks=3)))
    records = ceilings.survey([Survey(framework, cases, required=len(cases))], 600.0, Mock())
    assert [record.case for record in records] == cases
    for record in records:
        assert record.status == "ok", record.error
        assert len(record.blocks.duration_ns) == 3
        assert record.cost.bytes > 0
        assert record.software.threads == 1
        assert record.types.lowest == "fp32"
        metrics = load_metrics()(record)
        assert metrics["samples_per_s"].value > 0
        assert (metrics["tokens_per_s"].value is not None) == (record.case.problem in OF_TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["gemm", "gpt2"])
def test_compiled_steps_of_pytorch_are_right(cli, problem):
    """TorchInductor builds C++ here, which takes a while; that of GPT-2 has attention in it."""
    done = cli("check", f"--problem={problem}", "--framework=torch", "--compile", "--json")
    found = json.loads(done.stdout)
    assert found["ok"], done.stdout
    assert {finding["mode"] for finding in found["checks"]} >= {"inference", "forward_backward"}
