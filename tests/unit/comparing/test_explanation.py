"""What accounts for a difference of step times: profiles made by hand, with the shares worked out by hand."""

import pytest
from support.records import make_record

from benchmarker.comparing import matching
from benchmarker.comparing.explanation import explanation
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import Rules
from benchmarker.display.comparisons import family_output
from benchmarker.display.result import Text
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.profile import DeviceTime, Kernel, Scope, Trace
from benchmarker.records.sides import Side

MS = 1_000_000
STEPS = 2


def scope(name, ms, phase="forward"):
    """A scope that takes so many ms in each of the profiled steps."""
    ns = round(ms * MS)
    return Scope(name, phase, 1, 1, 1, STEPS * ns, STEPS * ns, STEPS * ns, 1.0, [ns] * STEPS)


def kernel(name, ms, of="", category="gemm"):
    """A kernel that takes so many ms of each step."""
    ns = round(STEPS * ms * MS)
    times = dict.fromkeys(("total_ns", "self_ns", "busy_ns", "mean_ns", "median_ns", "p5_ns", "p95_ns"), ns)
    times |= dict.fromkeys(("min_ns", "max_ns"), ns)
    return Kernel(
        name=name,
        op="op",
        category=category,
        rule="rule",
        scope=of,
        phase="forward",
        count=1,
        std_ns=0.0,
        flops=None,
        bytes=None,
        **times,
    )


def profile(*parts, busy_ms=None, devices=()):
    """The fields of a record whose profile has these scopes and kernels."""
    scopes, kernels = ([each for each in parts if isinstance(each, kind)] for kind in (Scope, Kernel))
    busy = sum(each.root_ns for each in scopes) if busy_ms is None else round(STEPS * busy_ms * MS)
    counts = [4, 4, STEPS, [], busy, busy, *(0,) * 10]
    trace = Trace("chrome", "toy", False, {}, *counts, list(devices), [], [], True)
    return {"trace": trace, "scopes": scopes, "kernels": kernels}


def trials(steps_ms, *profiles, framework="x"):
    """A trial for each step time, in ms; the first ones are profiled."""
    fields = [*profiles, *[{}] * (len(steps_ms) - len(profiles))]
    return tuple(
        make_record(
            step / 1e3, trial=trial, case={"framework": framework}, design={"case_number": "xy".index(framework)}, **of
        )
        for trial, (step, of) in enumerate(zip(steps_ms, fields, strict=True))
    )


def explained(one, two, least=0.02):
    return explanation(Side("a", one), Side("b", two), ("a", "b"), least)


LM_HEAD = (
    trials(
        [10.0, 10.2, 9.0], profile(scope("lm_head", 6), scope("mlp", 2), kernel("void slow<1>(Params)", 6, "lm_head"))
    ),
    trials([5.0, 5.1, 5.2], profile(scope("lm_head", 1.5), scope("mlp", 2.2), kernel("quick", 1.5, "lm_head"))),
)
"""Medians of 10 and 5.1 ms: 4.9 ms less, of which 4.5 in lm_head, -0.2 in mlp, and 0.6 of idle time (2 and 1.4)."""


def test_the_parts_are_those_of_a_hand_calculation_and_add_up_to_the_difference():
    found = explained(*LM_HEAD)
    assert found.step_s == found.explained_s == pytest.approx(-4.9e-3)
    assert [(part.name, pytest.approx(part.change_s)) for part in found.parts] == [
        ("lm_head", -4.5e-3),
        ("idle time", -0.6e-3),
        ("mlp", 0.2e-3),
    ]
    assert found.share(*found.parts) == pytest.approx(1)
    assert found.share(found.parts[0]) == pytest.approx(4.5 / 4.9)
    assert str(found) == (
        "92% of the difference of 4.9 ms between the step times is in lm_head: 6 ms in a (mainly slow<1>) and 1.5 ms "
        "in b (mainly quick)"
    )


def test_times_are_medians_over_the_profiled_trials():
    three = [profile(scope("mlp", ms)) for ms in (6, 7, 100)]
    found = explained(trials([20.0] * 3, *three), trials([15.0] * 3, profile(scope("mlp", 2))))
    assert found.parts[0].baseline_s == pytest.approx(7e-3)


def test_what_no_kernel_explains_is_idle_time():
    found = explained(trials([9.0], profile(scope("mlp", 3))), trials([4.0], profile(scope("mlp", 2.9))))
    assert (
        str(found) == "98% of the difference of 5 ms between the step times is in idle time: 6 ms in a and 1.1 ms in b"
    )


def test_a_part_may_account_for_more_than_the_difference():
    one = trials([10.0], profile(scope("mlp", 2), scope("attn", 8)))
    two = trials([12.0], profile(scope("mlp", 5), scope("attn", 7)))
    assert str(explained(one, two)) == (
        "more than the difference of 2 ms between the step times (150%, which other parts reduce) is in mlp: "
        "2 ms in a and 5 ms in b"
    )


def test_several_parts_are_named_if_none_alone_is_most_of_it():
    one = trials([10.0], profile(*(scope(name, 2) for name in "vwxyz")))
    two = trials([14.0], profile(*map(scope, "vwxyz", (2, 3.2, 3.2, 2.8, 2.8))))
    assert str(explained(one, two)) == (
        "60% of the difference of 4 ms between the step times is in 2 parts: w, 2 ms in a and 3.2 ms in b; "
        "x, 2 ms in a and 3.2 ms in b"
    )


def test_if_nothing_explains_it_that_is_said():
    many = [f"layer_{number}" for number in range(10)]
    one = trials([10.0], profile(*(scope(name, 1) for name in many)))
    two = trials([20.0], profile(*(scope(name, 2) for name in many)))
    found = explained(one, two)
    assert found.leading == ()
    assert str(found) == (
        "the difference of 10 ms between the step times is in many parts: the largest share, 10%, is in layer_0, "
        "1 ms in a and 2 ms in b"
    )


def test_busy_times_that_the_profiler_made_longer_than_the_step_are_told_as_such():
    one = trials([4.0], profile(scope("mlp", 5), scope("attn", 1)))
    two = trials([2.0], profile(scope("mlp", 2), scope("attn", 1)))
    assert str(explained(one, two)) == (
        "100% of the difference of 3 ms between the busy times under the profiler is in mlp: 5 ms in a and 2 ms in b"
    )
    against = trials([2.0], profile(scope("mlp", 6), scope("attn", 1)))
    assert str(explained(one, against)) == (
        "the profiles do not account for the difference of 2 ms between the step times: busy times under the profiler "
        "do not differ in that way"
    )


def test_without_scopes_on_both_sides_parts_are_kinds_of_kernels():
    one = trials([10.0], profile(scope("mlp", 8), kernel("slow", 7), kernel("add", 0.5, category="elementwise")))
    compiled = profile(kernel("quick", 1), kernel("add", 0.4, category="elementwise"), busy_ms=2)
    found = explained(one, trials([4.0], compiled))
    assert [
        (part.name, pytest.approx(1e3 * part.baseline_s), pytest.approx(1e3 * part.contender_s)) for part in found.parts
    ] == [
        ("gemm kernels", 7, 1),
        ("elementwise kernels", 0.5, 0.4),
        ("idle time", 2, 2),
        ("short kernels", 0.5, 0.6),
    ]


def test_the_time_of_several_devices_is_that_of_one():
    gpus = [DeviceTime(f"gpu:{number}", track, 1, 1, 1, 2) for number in (0, 1) for track in ("", "stream 7")]
    found = explained(
        trials([10.0], profile(scope("mlp", 12), devices=gpus)), trials([8.0], profile(scope("mlp", 8), devices=gpus))
    )
    assert str(found).startswith(
        "100% of the difference of 2 ms between the step times is in mlp: 6 ms in a and 4 ms in b"
    )


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (trials([10.0]), LM_HEAD[1]),
        (LM_HEAD[0], trials([10.1, 10.1], profile(scope("lm_head", 9)))),
    ],
    ids=["not profiled", "within δ"],
)
def test_there_is_no_explanation(one, two):
    assert explained(one, two) is None


def family(metric="step_time_median_s"):
    one, two = (
        trials(
            [each.blocks.duration_ns[0] / MS for each in of],
            {"trace": of[0].trace, "scopes": of[0].scopes},
            framework=name,
        )
        for name, of in zip("xy", LM_HEAD, strict=True)
    )
    return compare(matching.within([*one, *two]).matches, Rules(metric=metric), load_metrics())


def test_a_comparison_of_profiled_trials_has_it_and_the_terminal_prints_it():
    made = family()
    (each,) = made.comparisons
    assert each.explanation == (
        "92% of the difference of 4.9 ms between the step times is in lm_head: 6 ms in x and 1.5 ms in y"
    )
    assert f"  {each.explanation}" in [part.text for part in family_output(made) if isinstance(part, Text)]
    assert family("samples_per_s").comparisons[0].explanation == each.explanation
    assert family("compile_s").comparisons[0].explanation == ""
