"""The identity of a suite: what its SHA-256 covers, and in what two suites differ."""

import hashlib

import msgspec
import pytest

from benchmarker.records.suite import PlannedSuite, SuiteCase, differences, fingerprint, make_suite, of_case

GEMM = {"problem": "gemm", "framework": "torch", "m": 64}
SECOND = {**GEMM, "m": 128}


def suite(*cases, trials=6, design="rounds", names=()):
    made = [SuiteCase(settings=case, case_numbers=[]) for case in cases]
    for number, name in enumerate(names):
        made[number] = msgspec.structs.replace(made[number], name=name)
    return make_suite("mine", "1", made, trials, design)


def test_the_hash_is_that_of_the_text_that_the_page_states():
    text = (
        '{"cases":[{"framework":"torch","m":128,"problem":"gemm"},{"framework":"torch","m":64,"problem":"gemm"}],'
        '"design":"rounds","trials":6}'
    )
    assert suite(GEMM, SECOND).sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_order_repetition_and_names_of_cases_do_not_change_the_hash():
    assert suite(GEMM, SECOND).sha256 == suite(SECOND, GEMM, GEMM, names=["a", "b"]).sha256


@pytest.mark.parametrize(
    "other",
    [
        suite(GEMM, trials=7),
        suite(GEMM, design="duet"),
        suite(SECOND),
        suite(GEMM, SECOND),
        suite({**GEMM, "seconds": 1.0}),
        suite({**GEMM, "precision": "bf16"}),
        suite({**GEMM, "seed": 1}),
    ],
)
def test_what_determines_the_measurement_changes_the_hash(other):
    assert other.sha256 != suite(GEMM).sha256


def test_defaults_and_the_hardware_of_one_machine_are_not_part_of_a_suite():
    given = {"device": "cuda", "gpu": 3, "precision": "fp32", "seed": 0, "seconds": 30.0, "blocks": 7, **GEMM}
    assert of_case(given) == {**GEMM, "blocks": 7}


def test_a_suite_whose_hash_does_not_fit_is_refused():
    raw = msgspec.json.encode(suite(GEMM))
    assert msgspec.json.decode(raw, type=PlannedSuite) == suite(GEMM)
    with pytest.raises(msgspec.ValidationError, match="the sha256 of the suite is not that of its cases"):
        msgspec.json.decode(raw.replace(b'"m":64', b'"m":32'), type=PlannedSuite)


def test_numbers_that_are_not_finite_have_no_hash():
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint([{"m": float("nan")}], 1, "rounds")


def test_differences_are_named():
    one = suite({**GEMM, "blocks": 5}, {**SECOND, "blocks": 5}, {"problem": "nap"})
    doze = {"problem": "doze", "framework": "toy"}
    other = suite(GEMM, SECOND, doze, {"problem": "sleep"}, trials=2, names=["", "", "a nap"])
    assert differences(one, one) == []
    assert differences(one, other) == [
        "trials 6 → 2",
        "problem=gemm framework=torch m=64, problem=gemm framework=torch m=128: blocks 5 → 100",
        "1 missing: problem=nap",
        "2 additional: a nap (toy); problem=sleep",
    ]


def named(*cases, name="GEMM 1024", **more):
    return suite(*cases, names=[name] * len(cases), **more)


def square(size, framework="jax", **more):
    return {"problem": "gemm", "framework": framework, "m": size, "n": size, "k": size, **more}


def test_a_case_of_another_size_under_its_name_is_a_change_of_this_case():
    asked, done = (named(square(size), square(size, "torch")) for size in (1024, 512))
    assert differences(asked, done) == ["GEMM 1024 (jax, torch): m, n, k 1024 → 512"]
    done = named(square(1024), square(1024, "torch", seed=7))
    assert differences(asked, done) == ["GEMM 1024 (torch): seed 0 → 7"]


def test_names_are_not_swapped_either():
    """The hash does not contain names, so it is the same."""
    large, small = square(1024), square(512)
    asked, done = suite(large, small, names=["large", "small"]), suite(large, small, names=["small", "large"])
    assert asked.sha256 == done.sha256
    assert differences(asked, done) == ["large (jax): m, n, k 1024 → 512", "small (jax): m, n, k 512 → 1024"]
    assert differences(asked, suite(large, small, names=["big", "little"])) == []


def test_of_several_cases_of_a_name_the_similar_ones_are_paired():
    asked = named(*(square(size) for size in (64, 128, 256)))
    done = named(square(64), {**square(256), "k": 8}, square(128))
    assert differences(asked, done) == ["GEMM 1024 (jax): k 256 → 8"]


def test_a_seed_that_is_changed_in_all_cases_without_a_name_is_said_once():
    asked = suite(*(square(size) for size in (1, 2, 3, 4)))
    done = suite(*(square(size, seed=5) for size in (1, 2, 3, 4)))
    assert differences(asked, done) == ["4 of 4 cases: seed 0 → 5"]


def test_many_missing_cases_are_counted():
    several = [{**GEMM, "m": m} for m in range(5)]
    (text,) = differences(suite(GEMM, *several), suite(GEMM))
    assert text.startswith("5 missing: ")
    assert text.endswith("; and 2 more")


def test_a_trial_knows_the_name_of_its_case():
    cases = [SuiteCase(name="a", settings=GEMM, case_numbers=[0, 2]), SuiteCase(settings=SECOND, case_numbers=[1])]
    made = make_suite("mine", None, cases, 2, "rounds")
    assert [made.of(number).case for number in range(3)] == ["a", None, "a"]
    assert made.of(0).id == made.id
    assert str(made.id) == f"mine ({made.sha256[:12]})"
