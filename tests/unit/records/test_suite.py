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
        "trials 6 -> 2",
        "blocks 5 -> 100 in 2 of 3 cases",
        "1 missing: problem=nap",
        "2 additional: a nap (toy); problem=sleep",
    ]


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
