"""Names of cases: short, different for different cases, and there without the plugin."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.api.case import Case
from benchmarker.hooks import registry
from benchmarker.hooks.names import common_words, name, names, title
from benchmarker.hooks.parameters import resolve
from benchmarker.records.factors import factors_of

BUILT_IN = ("gemm", "attention", "gpt2", "stream")


def case(problem="gemm", params=None, **more):
    made = registry.problem(problem)
    full = resolve(made, params or {}, "cpu")
    return factors_of(Case(problem=problem, params=full, **{"framework": "jax", "device": "cpu"} | more))


def nap(**params):
    """A case of a problem that is not installed here."""
    return factors_of(Case(problem="nap", framework="toy", device="cpu", params=params))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (case(params={"m": 16, "n": 4096, "k": 4096}, precision="bf16"), "GEMM 16×4096×4096"),
        (case(params={"batch_size": 64, "transpose_a": True}), "GEMM B=64 1024×1024×1024 TN"),
        (case(params={"transpose_b": True}, mode="forward_backward"), "GEMM 1024×1024×1024 NT fwd+bwd"),
        (
            case("attention", {"batch_size": 2, "heads": 8, "seq_len": 1024, "impl": "einsum"}),
            "attention B=2 H=8 T=1024 D=64 einsum",
        ),
        (
            case("attention", {"causal": False}, mode="forward_backward"),
            "attention B=1 H=12 T=512 D=64 matmul non-causal fwd+bwd",
        ),
        (case("gpt2", mode="training"), "GPT-2 small training, B=1 T=128"),
        (case("gpt2", {"size": "2.7b", "impl": "fused"}), "GPT-2 2.7b inference, B=1 T=128 fused"),
        (
            case("gpt2", {"n_layer": 2, "d_ff": 64, "vocab_size": 512}, mode="forward_backward"),
            "GPT-2 L=2 d=768 H=12 d_ff=64 V=512 fwd+bwd, B=1 T=128",
        ),
        (case("gpt2", {"n_layer": 24, "d_model": 1024, "n_head": 16}), "GPT-2 medium inference, B=1 T=128"),
        (case("stream", {"op": "copy", "n": 2**28}), "STREAM copy n=2^28"),
        (case("stream", {"n": 1000}), "STREAM triad n=1000"),
        (nap(ms=1.0, fault="none"), "nap ms=1.0 fault=none"),
    ],
)
def test_every_problem_says_its_case_in_a_few_words(made, expected):
    assert title(made) == expected
    assert names([made]).each == ("",)
    assert names([made]).shared.startswith(expected)


def test_a_case_alone_has_its_framework_precision_and_device():
    assert name(case(precision="bf16", device="cuda")) == "GEMM 1024×1024×1024 bf16 in jax on cuda"


def test_what_differs_is_appended_and_what_is_shared_is_said_once():
    cases = [
        case(precision=precision, framework=framework)
        for framework in ("jax", "torch")
        for precision in ("fp32", "bf16")
    ]
    made = names(cases, apart=["framework"])
    assert made.each == ("fp32", "bf16", "fp32", "bf16")
    assert made.shared == "GEMM 1024×1024×1024 on cpu, eager"
    assert names(cases).each == ("jax fp32", "jax bf16", "torch fp32", "torch bf16")
    cases = [case(), case("stream", threads=2), case("stream", threads=2, precision="bf16")]
    assert names(cases).each == (
        "GEMM 1024×1024×1024 fp32",
        "STREAM triad n=2^25 fp32",
        "STREAM triad n=2^25 bf16",
    )
    assert names([*cases, case("stream", seed=3)]).each[1:] == (
        "STREAM triad n=2^25 fp32 2 threads",
        "STREAM triad n=2^25 bf16 2 threads",
        "STREAM triad n=2^25 fp32 default threads",
    )
    assert names([case(gpu=0, device="cuda", compile=True)]).shared == (
        "GEMM 1024×1024×1024 fp32 in jax on cuda, compiled, gpu=0"
    )


def test_how_a_framework_runs_its_steps_is_named_in_its_own_word():
    jitted = case(framework="jax", compile=True, executions=["jitted"])
    assert names([jitted, case(framework="torch")]).each == ("jax jitted", "torch eager")
    assert names([jitted, case(framework="torch")], apart=["framework", "execution"]).each == ("", "")
    assert names([case(compile=True), case()]).each == ("compiled", "eager")
    assert name(jitted) == "GEMM 1024×1024×1024 fp32 in jax on cpu, jitted"
    assert name(case()) == "GEMM 1024×1024×1024 fp32 in jax on cpu"


def test_the_number_of_devices_is_always_named_and_how_they_divide_the_work_where_it_differs():
    ways = [{}, {"devices": 2, "parallel": "dp"}, {"devices": 2, "parallel": "tp"}, {"devices": 4, "parallel": "tp"}]
    cases = [case("gpt2", mode="training", **way) for way in ways]
    assert names(cases).each == ("1 device", "2 devices dp", "2 devices tp", "4 devices tp")
    assert names(cases[:2]).each == ("1 device", "2 devices")
    assert names(cases[2:3]).shared.endswith(", 2 devices, tp")


def test_a_problem_without_titles_is_named_by_the_parameters_that_differ():
    made = names([nap(ms=1.0, fault="none"), nap(ms=2.0, fault="none")])
    assert made.each == ("nap ms=1.0", "nap ms=2.0")
    assert made.shared == "fault=none fp32 in toy on cpu"
    assert names([nap(ms=1.0), case()]).each == ("nap ms=1.0 toy", "GEMM 1024×1024×1024 jax")
    assert names([nap(ms=1.0)]).shared == "nap ms=1.0 fp32 in toy on cpu"


def test_titles_that_do_not_tell_cases_apart_are_completed():
    cases = [case(params={"m": 16}), case(params={"m": 32}), case("stream")]
    made = names(cases, titles=["GEMM", "GEMM", "STREAM"])
    assert made.each == ("GEMM m=16", "GEMM m=32", "STREAM")


def test_the_words_that_titles_share_stay_in_their_order():
    titles = ["GPT-2 small training, B=1 T=128", "GPT-2 medium training, B=1 T=64"]
    assert common_words(titles) == "GPT-2 training, B=1"
    assert common_words(["GEMM 1×1×1"]) == "GEMM 1×1×1"


TITLES = """
from dataclasses import dataclass
from benchmarker import Cost, Data, Problem, hookimpl

@dataclass(frozen=True)
class Odd(Problem):
    summary, cost_formula = "odd", ""
    size: int = 1
    def scopes(self, mode): return {}
    def cost(self, mode, precision): return Cost(1, 1, 1)
    def data(self, precision, rng, batches): return Data({}, ())
    def small(self): return self
    def reference(self, data, mode): return iter(())
    def title(self, mode): return TITLE

@hookimpl
def define_problem(): return Odd
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f'odd  one\\n{self.size}'", "odd one 3"),
        ("''", "odd size=3"),
        ("None", "odd size=3"),
        ("1 / 0", "odd size=3"),
        ("exit()", "odd size=3"),
    ],
)
def test_a_plugins_mistake_costs_its_title_alone(distribution, code, expected):
    module = f"odd{sum(map(ord, code))}"
    distribution(module, {f"problem.{module}": module}, {"__init__.py": TITLES.replace("TITLE", code)})
    made = factors_of(Case(problem=module, framework="toy", device="cpu", params={"size": 3}))
    assert title(made).replace(module, "odd") == expected
    older = factors_of(Case(problem=module, framework="toy", device="cpu", params={"size": 3, "width": 4}))
    assert title(older).replace(module, "odd") == "odd size=3 width=4"


CASES = st.builds(
    lambda problem, params, own: case(problem, params.get(problem, {}), **own),
    st.sampled_from(BUILT_IN),
    st.fixed_dictionaries(
        {
            "gemm": st.fixed_dictionaries({"m": st.sampled_from([8, 16]), "transpose_a": st.booleans()}),
            "gpt2": st.fixed_dictionaries({"impl": st.sampled_from(["matmul", "fused"]), "n_layer": st.integers(1, 2)}),
            "attention": st.fixed_dictionaries({"causal": st.booleans(), "seq_len": st.sampled_from([64, 128])}),
        }
    ),
    st.fixed_dictionaries(
        {
            "framework": st.sampled_from(["jax", "torch"]),
            "precision": st.sampled_from(["fp32", "bf16"]),
            "mode": st.sampled_from(["inference", "training"]),
            "device": st.sampled_from(["cpu", "cuda"]),
            "compile": st.booleans(),
            "threads": st.sampled_from([None, 1]),
            "seed": st.integers(0, 1),
        }
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CASES, min_size=1, max_size=12), st.sets(st.sampled_from(["framework", "precision"])))
def test_two_different_cases_never_have_the_same_name(cases, apart):
    made = names(cases, apart)
    told = [(own, *(each[name] for name in sorted(apart))) for own, each in zip(made.each, cases, strict=True)]
    for (one, first), (other, second) in pairwise(sorted(zip(told, map(repr, cases), strict=True))):
        assert (one == other) == (first == second)
