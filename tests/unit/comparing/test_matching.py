"""Which configurations are compared with which."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import Measuring, UserError
from benchmarker.comparing import matching


def records(run, *cases, trials=2):
    return [
        make_record(run=run, trial=trial, case=case, design={"case_number": number})
        for number, case in enumerate(cases)
        for trial in range(trials)
    ]


def names(made):
    return [(dict(match.case), match.baseline.name, match.contender.name) for match in made.matches]


def test_two_single_configurations_of_the_same_work_match_whatever_else_they_are():
    made = matching.between([("a", records("r1", {"framework": "x"})), ("b", records("r2", {"threads": 2}))])
    assert names(made) == [({}, "framework=x threads=-", "framework=toy threads=2")]


@pytest.mark.parametrize(
    ("other", "difference", "axis"),
    [
        ({"precision": "fp64"}, "precision fp32 and fp64", "precision"),
        ({"mode": "training"}, "mode inference and training", "mode"),
        ({"params": {"ms": 2.0}}, "ms 1.0 and 2.0", "ms"),
        ({"precision": "fp64", "framework": "x", "compile": True}, "precision fp32 and fp64", "framework,precision"),
        ({"problem": "walk", "params": {"km": 9}}, "problem nap and walk", "problem"),
        ({"params": dict.fromkeys("abcd", 1)}, "a - and 1, b - and 1, c - and 1, 1 more", "a,b,c,d"),
    ],
)
def test_results_of_different_work_are_refused_unless_the_difference_is_named(other, difference, axis):
    both = [("one", records("r1", {})), ("two", records("r2", other))]
    with pytest.raises(UserError) as told:
        matching.between(both)
    assert str(told.value) == (
        f"one and two are different work: {difference}; leave one out, or compare them nevertheless with --by={axis}"
    )
    assert len(matching.by([each for _, group in both for each in group], axis, None).matches) == 1
    lenient = matching.between([*both, ("three", records("r3", {}))], lenient=True)
    assert names(lenient) == [({}, "one", "three")]
    assert lenient.notes == (f"not compared: one and two are different work: {difference}",)


def test_a_case_of_another_precision_among_others_has_no_counterpart_and_the_nearest_is_named():
    one = records("r1", {"params": {"ms": 1.0}}, {"params": {"ms": 2.0}})
    two = records("r2", {"params": {"ms": 1.0}}, {"params": {"ms": 2.0}, "precision": "bf16"})
    made = matching.between([("a", one), ("b", two)])
    assert names(made) == [({"precision": "fp32", "ms": 1.0}, "a", "b")]
    assert made.unmatched == ("b: nap ms=2.0 bf16 (nearest in a: precision=fp32)", "a: nap ms=2.0 fp32")


def test_the_same_configuration_of_two_results_goes_by_the_results():
    made = matching.between([("old", records("r1", {})), ("new", records("r2", {})), ("newer", records("r3", {}))])
    assert names(made) == [({}, "old", "new"), ({}, "old", "newer")]


def test_how_a_place_was_measured_does_not_name_it():
    slower = Measuring(seconds=60.0)
    made = matching.between([("mine", records("r1", {})), ("theirs", records("r2", {"measuring": slower}))])
    assert names(made) == [({}, "mine", "theirs")]


def test_runs_of_one_plan_match_case_by_case_and_the_rest_is_named():
    one = records("r1", {"params": {"ms": 1.0}}, {"params": {"ms": 2.0}}, {"params": {"ms": 3.0}})
    two = records("r2", *({"framework": "x", "params": {"ms": ms}} for ms in (2.0, 1.0, 4.0)))
    made = matching.between([("a", one), ("b", two)])
    assert names(made) == [
        ({"ms": 2.0}, "framework=toy", "framework=x"),
        ({"ms": 1.0}, "framework=toy", "framework=x"),
    ]
    assert made.unmatched == ("b: nap ms=4.0 (nearest in a: ms=3.0)", "a: nap ms=3.0")
    with pytest.raises(UserError, match="no configuration has a counterpart"):
        matching.between([("a", one[:2]), ("b", records("r2", {"seed": 1}, {"seed": 2}))])


def test_by_an_axis_every_pair_that_differs_in_it_alone():
    cases = [{"framework": name, "precision": precision} for precision in ("fp32", "fp64") for name in ("x", "y", "z")]
    made = matching.by(records("r", *cases, {"framework": "x", "precision": "bf16"}), "framework", "y")
    assert names(made) == [
        ({"precision": precision}, "framework=y", f"framework={name}")
        for precision in ("fp32", "fp64")
        for name in ("x", "z")
    ]
    assert made.unmatched == ("framework=x bf16",)


def test_several_axes_vary_together():
    cases = [{"precision": p, "params": {"ms": ms}, "seed": s} for p, ms in (("x", 1.0), ("y", 2.0)) for s in (0, 1)]
    made = matching.by(records("r", *cases), "precision,ms", "y,2.0")
    assert names(made) == [({"seed": seed}, "precision=y ms=2.0", "precision=x ms=1.0") for seed in (0, 1)]
    with pytest.raises(UserError, match=r"no record has precision,ms=z; there are: x,1\.0, y,2\.0"):
        matching.by(records("r", *cases), "precision,ms", "z")


def test_of_two_problems_only_one_case_each_is_compared():
    cases = [{"problem": "walk", "params": {"km": km}} for km in (1, 2)]
    with pytest.raises(UserError, match="problem=walk has several cases, which differ in km; name results with one"):
        matching.by(records("r", {}, *cases), "problem", None)


def test_the_baseline_is_what_was_asked_for_first():
    made = matching.by(list(reversed(records("r", {"seed": 5}, {"seed": 3}))), "seed", None)
    assert names(made) == [({}, "seed=5", "seed=3")]


def test_frameworks_that_always_compile_are_compared_with_those_that_do_not():
    cases = [{"framework": "x", "compile": True}, {"framework": "y"}]
    x, y = "framework=x execution=compiled", "framework=y execution=eager"
    assert names(matching.by(records("r", *cases), "framework", None)) == [({}, x, y)]
    assert names(matching.by(records("r", *cases), "framework", "Y", "x")) == [({}, y, x)]
    both = [*cases, {"framework": "y", "compile": True}]
    assert names(matching.by(records("r", *both), "framework", None)) == [
        ({}, x, y),
        ({}, x, "framework=y execution=compiled"),
    ]
    assert names(matching.by(records("r", *both), "framework", "y,compiled", "x")) == [
        ({}, "framework=y execution=compiled", x)
    ]
    with pytest.raises(UserError, match=r"framework,execution=y; there are: x,compiled, y,eager, y,compiled"):
        matching.by(records("r", *both), "framework", "y")


def test_by_the_environment_of_the_trials():
    one = records("r1", {})
    machine = msgspec.structs.replace(one[0].machine, host="other")
    two = [msgspec.structs.replace(record, machine=machine) for record in records("r2", {})]
    (match,) = matching.by([*one, *two], "host", None).matches
    assert match.contender.name == "host=other"
    assert [record.run_id for record in match.contender.records] == ["r2", "r2"]


@pytest.mark.parametrize(
    ("axis", "baseline", "message"),
    [
        ("nothing", None, "--by=nothing: the records have no such factor; there are: problem, framework"),
        ("sede", None, r"--by=sede: the records have no such factor; did you mean seed\?"),
        ("precision", None, "--by=precision: every record has precision=fp32"),
        ("seed", "7", "--baseline=7: no record has seed=7; there are: 0, 1"),
    ],
)
def test_an_axis_that_will_not_do(axis, baseline, message):
    with pytest.raises(UserError, match=message):
        matching.by(records("r", {}, {"seed": 1}), axis, baseline)


def test_nothing_differs_in_one_axis_alone():
    with pytest.raises(UserError, match="no two configurations differ in seed alone"):
        matching.by(records("r", {}, {"seed": 1, "precision": "fp64"}), "seed", None)


def test_within_one_run():
    assert names(matching.within(records("r", {"seed": 1}, {"seed": 0}))) == [({}, "seed=1", "seed=0")]
    three = records("r", {"seed": 1}, {"seed": 0}, {"seed": 2})
    assert [match.contender.name for match in matching.within(three).matches] == ["seed=0", "seed=2"]
    with pytest.raises(UserError, match="differ in precision and seed; name one with --by"):
        matching.within(records("r", {}, {"seed": 1}, {"precision": "fp64"}))
    with pytest.raises(UserError, match="of one configuration"):
        matching.within(records("r", {}))


@pytest.mark.parametrize(
    ("cases", "axes"),
    [
        ([{}, {"seed": 1, "precision": "fp64"}], "precision,seed"),
        ([{}, {"mode": "training"}], "mode"),
        ([{}, {"mode": "training"}, {"mode": "forward_backward"}], "mode"),
        ([{}, {"problem": "walk", "params": {"km": 1}}], "problem"),
    ],
)
def test_different_work_within_one_run_must_be_named_unless_it_is_of_ab(cases, axes):
    with pytest.raises(UserError, match=f"do different work: they differ in .*; compare .* with --by={axes}$"):
        matching.within(records("r", *cases))
    matching.by(records("r", *cases), axes, None)
    looked = [
        msgspec.structs.replace(r, design=msgspec.structs.replace(r.design, looks=[8])) for r in records("r", *cases)
    ]
    if len(cases) == 2:
        assert len(matching.within(looked).matches) == 1


def test_one_parameter_or_precision_within_a_run_needs_no_name():
    for case in ({"precision": "fp64"}, {"params": {"ms": 9.0}}):
        assert len(matching.within(records("r", {}, case)).matches) == 1


def test_frameworks_of_one_run_are_compared_though_some_compile():
    three = records("r", {"framework": "x", "compile": True}, {"framework": "y"}, {"framework": "z"})
    assert [match.contender.name for match in matching.within(three).matches] == [
        "framework=y execution=eager",
        "framework=z execution=eager",
    ]


def test_an_experiment_of_the_same_with_itself_has_two_sides():
    (match,) = matching.within(records("r", {}, {}, trials=3)).matches
    assert (match.baseline.name, match.contender.name) == ("A", "B")
    assert [record.design.case_number for record in match.contender.records] == [1, 1, 1]


def test_a_trial_in_both_results_is_refused():
    same = records("r", {})
    with pytest.raises(UserError, match="a and b both contain the trial r-0000-0"):
        matching.between([("a", same), ("b", same)])


def test_a_trial_read_twice_counts_once():
    (match,) = matching.within(records("r", {}, {"seed": 1}) * 2).matches
    assert len(match.baseline.records) == 2


def test_each_match_has_a_short_name_and_what_all_share_is_said_once():
    cases = [
        {"framework": name, "precision": precision, "compile": name == "x"}
        for precision in ("fp32", "fp64")
        for name in ("x", "y", "z")
    ]
    made = matching.by(records("r", *cases), "framework", None)
    assert [match.name for match in made.matches] == ["fp32", "fp32", "fp64", "fp64"]
    assert made.shared == "nap ms=1.0 on cpu"
    made = matching.within(records("r", {"precision": "fp64"}, {"precision": "fp64", "params": {"ms": 2.0}}))
    assert [match.name for match in made.matches] == [""]
    assert made.shared == "nap fp64 in toy on cpu"


def test_a_name_does_not_say_what_the_sides_differ_in():
    def attention(**params):
        shape = {"batch_size": 1, "heads": 2, "seq_len": 64, "head_dim": 16, "causal": True, "impl": "matmul"}
        return msgspec.structs.replace(make_record().case, problem="attention", params=shape | params)

    cases = [attention(impl=impl, seq_len=length) for length in (64, 128) for impl in ("einsum", "matmul")]
    several = [
        msgspec.structs.replace(record, case=cases[record.design.case_number]) for record in records("r", *[{}] * 4)
    ]
    made = matching.by(several, "impl", None)
    assert [match.name for match in made.matches] == [
        "attention B=1 H=2 T=64 D=16",
        "attention B=1 H=2 T=128 D=16",
    ]
    made = matching.by(several, "seq_len", None)
    assert [match.name for match in made.matches] == [
        "attention B=1 H=2 D=16 einsum",
        "attention B=1 H=2 D=16 matmul",
    ]
