"""Acceptance: PASS and FAIL with reasons, and what no case asks for."""

import json
import math
import re
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from support.records import QUIET, make_record

from benchmarker import UserError
from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement import reference
from benchmarker.procurement.accept import accept
from benchmarker.procurement.completeness import MissingTrials
from benchmarker.procurement.reference import Tolerance, Wanted, draft
from benchmarker.records.plan import make_plan

FAILURE = {"kind": "out_of_memory", "message": "too much", "stage": "timed"}


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def trials(*steps, seed=0, run="run", host=None, first=0, failing=()):
    """A record for each step time: 2 samples a step."""
    found = []
    for number, step in enumerate(steps, first):
        record = make_record(step, run=run, trial=number, case={"seed": seed}, design={"case_number": seed})
        if host:
            record = msgspec.structs.replace(record, machine=msgspec.structs.replace(record.machine, host=host))
        if number in failing:
            record = msgspec.convert(
                {**msgspec.to_builtins(record), "status": "failed", "error": FAILURE}, type(record)
            )
        found.append(record)
    return found


def expected(low=None, high=None, *, metric="samples_per_s", trials=1, name="naps", **match):
    return Wanted(name, match, metric, low, high, trials)


def reasons(wanted, records, derive, unrun=()):
    (outcome,) = accept([wanted], records, unrun, derive).outcomes
    assert outcome.verdict == ("FAIL" if outcome.reasons else "PASS")
    return outcome.reasons


def test_the_median_passes_within_its_bounds(derive):
    records = trials(1.0, 2.0, 8.0)  # 2, 1 and 0.25 samples a second
    (outcome,) = accept([expected(1.0, 1.0)], records, (), derive).outcomes
    assert (outcome.verdict, outcome.value, outcome.lowest, outcome.highest) == ("PASS", 1.0, 0.25, 2.0)
    assert (outcome.trials, outcome.unit, outcome.name) == (3, "1/s", "naps")
    assert outcome.command.startswith("python -m benchmarker run --framework=toy --problem=nap --device=cpu")
    assert outcome.duration_s == 6.0
    (outcome,) = accept([expected(1.0, 1.0, trials=3)], records, (), derive).outcomes
    assert outcome.command.endswith(" --trials=3")


def test_out_of_bounds_says_by_how_much(derive):
    records = trials(1.0, 2.0, 8.0)
    assert reasons(expected(1.25), records, derive) == ["the median is 20.00% below 1.25"]
    assert reasons(expected(None, 0.8), records, derive) == ["the median is 25.00% above 0.8"]
    assert reasons(expected(None, 0.0), records, derive) == ["the median is 1 above 0"]
    assert reasons(expected(None, 3.0, metric="step_time_median_s"), records, derive) == []


def test_a_failed_trial_fails_the_case_and_is_named(derive):
    records = trials(1.0, 1.0, 1.0, failing=(1,))
    assert reasons(expected(1.0), records, derive) == ["1 of 3 trials failed: out_of_memory: too much"]
    assert reasons(expected(1.0, trials=3), records, derive)[1] == "2 of the 3 required trials succeeded"


def test_too_few_trials_and_those_that_were_not_run(derive):
    records = trials(1.0, 1.0)
    assert reasons(expected(1.0, trials=6), records, derive) == ["2 of the 6 required trials succeeded"]
    unrun = [MissingTrials("run", records[0].case, 4)]
    assert reasons(expected(1.0), records, derive, unrun) == ["4 trials of run run not run"]
    none = reasons(expected(1.0), [], derive, unrun)
    assert none == ["4 trials of run run not run", "0 of the 1 required trials succeeded"]


def test_a_metric_without_a_value_fails_with_its_reason(derive):
    assert reasons(expected(1.0, metric="tokens_per_s"), trials(1.0, 1.0), derive) == [
        "2 of 2 trials have no tokens_per_s: nap has no tokens"
    ]
    with pytest.raises(UserError, match="naps: no metric is named 'speed'; there are: "):
        accept([expected(1.0, metric="speed")], trials(1.0), (), derive)


def test_a_case_that_nothing_matches_fails(derive):
    (outcome,) = accept([expected(1.0, seed=7)], trials(1.0), (), derive).outcomes
    assert outcome.reasons == ["no record matches: no record has seed=7; they have 0"]
    assert outcome.configuration is None
    (outcome,) = accept([expected(1.0, sed=7)], trials(1.0), (), derive).outcomes
    assert outcome.reasons == ["no record matches: no record has a sed; did you mean seed?"]


def test_another_size_or_seed_under_the_name_of_a_case_is_said_to_be_one(derive):
    done = [
        make_record(case={"problem": "gemm", "seed": seed, "params": {"m": size, "n": size}}, run=f"run{size}")
        for seed, size in ((0, 512), (7, 1024))
    ]
    wanted = [
        expected(1.0, name="GEMM 1024", problem="gemm", m=1024, n=1024, seed=0),
        expected(1.0, name="GEMM 512", problem="gemm", m=512, n=512, seed=0),
    ]
    other, good = accept(wanted, done, (), derive).outcomes
    assert (good.name, good.verdict) == ("GEMM 512", "PASS")
    (reason,) = other.reasons
    assert reason.endswith(" was measured instead: seed 0 → 7")
    (outcome,) = accept(wanted[:1], done[:1], (), derive).outcomes
    assert outcome.reasons[0].endswith(" was measured instead: m, n 1024 → 512")


def test_of_several_configurations_each_must_pass(derive):
    records = [*trials(1.0), *trials(4.0, seed=1)]
    first, second = accept([expected(1.0)], records, (), derive).outcomes
    assert (first.name, first.verdict) == ("naps seed=0", "PASS")
    assert (second.name, second.verdict) == ("naps seed=1", "FAIL")


def test_hosts_are_judged_apart_so_that_good_ones_do_not_hide_a_bad_one(derive):
    records = [*trials(1.0, 1.0, 1.0, host="good"), *trials(4.0, host="bad", run="other")]
    found = accept([expected(1.0)], records, (), derive).outcomes
    assert [(each.name, each.verdict) for each in found] == [("naps host=good", "PASS"), ("naps host=bad", "FAIL")]
    (bad,) = accept([expected(0.1, host="bad")], records, (), derive).outcomes
    assert bad.value == 0.5
    unrun = [MissingTrials("other", records[0].case, 2)]
    found = accept([expected(0.1)], records, unrun, derive).outcomes
    assert [each.verdict for each in found] == ["PASS", "FAIL"]


def test_what_no_case_asks_for_is_listed_and_fails_where_it_failed(derive):
    records = [*trials(1.0), *trials(1.0, seed=1), *trials(1.0, seed=2, failing=(0,))]
    found = accept([expected(1.0, seed=0)], records, [MissingTrials("run", trials(1.0, seed=3)[0].case, 5)], derive)
    assert found.unasked == ["nap ms=1.0 seed=1"]
    assert [(each.name, each.verdict) for each in found.outcomes] == [
        ("naps", "PASS"),
        ("not in the reference: nap ms=1.0 seed=2", "FAIL"),
        ("not in the reference: nap ms=1.0 seed=3", "FAIL"),
    ]
    assert found.outcomes[2].reasons == ["5 trials of run run not run"]


REFERENCE = '[[case]]\nname = "evil \\u001b[31m<b>"\nmatch = {seed = 0}\nmin = 0.5\n'


@pytest.fixture
def stored(tmp_path):
    """A run of two cases with three trials each, its plan, and a reference of the first."""
    folder = tmp_path / "run"
    folder.mkdir()
    records = [*trials(1.0, 1.0, 2.0), *trials(1.0, 1.0, 1.0, seed=1)]
    plan = make_plan([records[0].case, records[3].case], 3)
    (folder / "plan.json").write_bytes(atomic.encode(msgspec.structs.replace(plan, run_id="run")))
    for record in records:
        (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    (tmp_path / "reference.toml").write_text(REFERENCE)
    return folder


def test_the_command_passes_and_lists_what_it_did_not_judge(command, stored, tmp_path):
    done = command("suite", "accept", "run", "--reference=reference.toml", "--junit=out.xml")
    assert done.returncode == 0
    assert "PASS evil \\x1b[31m<b>: samples_per_s 2 (1 to 2, 3 trials), min 0.5\n" in done.stdout
    assert "     repeat with: python -m benchmarker run --framework=toy --problem=nap" in done.stdout
    assert "not judged, no case of the reference matches: nap ms=1.0 seed=1" in done.stdout
    assert done.stdout.endswith("PASSED: 1 of 1 passed\n")
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("skipped"), suite.get("failures")) == ("2", "1", "0")
    assert suite[0].get("name") == "evil \ufffd[31m<b> samples_per_s"
    assert float(suite[0].get("time")) == 6.0


def test_the_command_fails_and_says_why(command, stored, tmp_path):
    (tmp_path / "reference.toml").write_text(REFERENCE.replace("0.5", "4"))
    done = command("suite", "accept", "run", "--reference=reference.toml", "--junit=out.xml")
    assert done.returncode == 1
    assert "     the median is 50.00% below 4\n" in done.stdout
    assert done.stdout.endswith("FAILED: 0 of 1 passed\n")
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert suite.find("testcase/failure").get("message") == "the median is 50.00% below 4"
    assert "repeat with: python -m benchmarker run" in suite.findtext("testcase/system-out")
    found = json.loads(command("suite", "accept", "run", "--reference=reference.toml", "--json").stdout)
    assert found["verdict"] == found["outcomes"][0]["verdict"] == "FAIL"
    assert found["unasked"] == ["nap ms=1.0 seed=1"]


def test_a_file_that_cannot_be_read_never_passes(command, stored, tmp_path):
    (stored / "cut.json").write_text("{")
    done = command("suite", "accept", "run", "--reference=reference.toml", "--junit=out.xml")
    assert done.returncode == 1
    assert "cut.json" in done.stderr
    assert done.stdout.endswith("FAILED: 1 of 1 passed; 1 file cannot be read\n")
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert suite.get("errors") == "1"
    none = command("suite", "accept", "none", "--reference=reference.toml")
    assert none.returncode == 1
    assert "     no record matches: there is no record\n" in none.stdout


def test_an_interrupted_run_never_passes(command, stored):
    sorted(stored.glob("run-*-1.json"))[-1].unlink()
    done = command("suite", "accept", "run", "--reference=reference.toml")
    assert done.returncode == 1
    made = command("suite", "accept", "run", "--write=made.toml", "--tolerance=5%")
    assert (made.returncode, made.stderr) == (1, "benchmarker: 1 trial of run run not run\n")
    assert "FAIL not in the reference: nap ms=1.0 seed=1\n     1 trial of run run not" in done.stdout


def test_a_reference_is_written_once_and_is_met_by_its_records(command, stored, tmp_path):
    done = command("suite", "accept", "run", "--write=made.toml", "--tolerance=10%")
    assert (done.returncode, done.stdout) == (0, "reference of 2 cases: made.toml\n")
    assert "min = 1.8  # median of 3 trials: 2 1/s; 10% tolerated\n" in (tmp_path / "made.toml").read_text()
    again = command("suite", "accept", "run", "--write=made.toml")
    assert again.returncode == 2
    assert "made.toml exists already" in again.stderr
    assert "\nPASSED: 2 of 2 passed; 1 borderline" in command("suite", "accept", "run", "--reference=made.toml").stdout


STEADY = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0)
"""Step times of six trials; the deviation of their logarithms is 1.414%."""


def drafted(derive, *sets, metric="samples_per_s", tolerance=None):
    records = [record for seed, steps in enumerate(sets) for record in trials(*steps, seed=seed, run=f"run{seed}")]
    return draft(Cases.of(records), metric, tolerance, derive)


def test_bounds_come_from_the_scatter_for_all_cases_together(derive):
    """t(5) at 1 - 5%/2 is 2.5706 (any table); 2.5706 * 1.4144% * sqrt(pi/2 * 2/6) = 2.631%."""
    (first, _), left_out, notes = drafted(derive, STEADY, STEADY)
    assert first.limit == pytest.approx(2 * math.exp(-0.02631), rel=1e-4)
    assert (first.bound, first.trials, left_out, notes) == ("min", 6, [], [])
    assert first.measured == "median of 6 trials: 2 1/s; scatter 1.42%, so 6 new trials may be 2.60% lower"
    ((alone,), _, _) = drafted(derive, STEADY)
    assert first.limit < alone.limit < 2
    ((time,), _, _) = drafted(derive, STEADY, metric="step_time_median_s")
    assert (time.bound, time.limit) == ("max", pytest.approx(2 / alone.limit, rel=1e-4))


def test_a_tolerance_replaces_the_scatter_or_is_added_to_it(derive):
    ((alone,), _, _) = drafted(derive, STEADY)
    ((fixed,), _, _) = drafted(derive, STEADY, tolerance=Tolerance(0.03))
    assert (fixed.limit, fixed.measured) == (1.94, "median of 6 trials: 2 1/s; 3% tolerated")
    ((added,), _, _) = drafted(derive, STEADY, tolerance=Tolerance(0.03, adds=True))
    assert added.limit == pytest.approx(0.97 * alone.limit, rel=1e-5)
    assert added.measured.endswith("lower; 3% more tolerated")


def test_a_single_trial_has_no_bound_from_scatter_and_few_have_a_wide_one(derive):
    made, left_out, notes = drafted(derive, [1.0], [1.0, 1.1])
    assert left_out == ["nap ms=1.0 seed=0: a single trial shows no scatter; measure several, or give --tolerance"]
    (note,) = notes
    assert note.startswith("nap ms=1.0 seed=1: the bound is ")
    assert note.endswith("% lower than the median; more trials would narrow it")
    assert len(made) == 1
    assert len(drafted(derive, [1.0], tolerance=Tolerance(0.03))[0]) == 1


def test_the_command_takes_bounds_from_scatter_unless_told(command, tmp_path):
    (tmp_path / "run").mkdir()
    for record in trials(*STEADY):
        (tmp_path / f"run/{record.trial_id}.json").write_bytes(atomic.encode(record))
    for name, options in (("plain", []), ("fixed", ["--tolerance=3%"]), ("added", ["--tolerance=+3%"])):
        assert command("suite", "accept", "run", f"--write={name}.toml", *options).returncode == 0
        assert command("suite", "accept", "run", f"--reference={name}.toml").stdout.endswith("PASSED: 1 of 1 passed\n")
    limits = {name: reference.read(tmp_path / f"{name}.toml")[0].low for name in ("plain", "fixed", "added")}
    assert limits["fixed"] == 1.94
    assert limits["added"] == pytest.approx(0.97 * limits["plain"], rel=1e-5)


def save(folder, records):
    folder.mkdir()
    for record in records:
        (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))


def beside_others(record):
    return msgspec.structs.replace(record, interference=msgspec.structs.replace(QUIET, other_busy_cores=1.9))


def test_a_run_beside_other_work_is_no_reference(command, tmp_path):
    """14 of 24 trials were slowed down by up to ten times: whatever is delivered would pass their bounds."""
    slowed = (1.0, 10.0, 3.0, 8.0, 1.0, 6.0, 1.0, 4.0)
    records = [record for seed in range(3) for record in trials(*slowed, seed=seed)]
    disturbed = [*range(7), *range(8, 13), 16, 17]
    records = [beside_others(record) if at in disturbed else record for at, record in enumerate(records)]
    save(tmp_path / "run", records)
    refused = command("suite", "accept", "run", "--write=made.toml")
    assert (refused.returncode, refused.stdout, (tmp_path / "made.toml").exists()) == (2, "", False)
    assert refused.stderr.splitlines()[-1] == (
        "benchmarker: error: no reference is written: most trials of 2 of 3 cases were disturbed (14 of 24 trials were "
        "disturbed, for instance: other processes kept 1.9 cores busy (14 trials)); stop other work on the machine, "
        "then repeat the run, or use --anyway"
    )
    done = command("suite", "accept", "run", "--write=made.toml", "--anyway")
    assert (done.returncode, done.stdout) == (
        0,
        "reference of 3 cases: made.toml; 3 bounds more than 10% from the median\n",
    )
    assert len(re.findall(r"nap ms=1.0 seed=\d: the bound is \d\d\.\d+% lower than the median", done.stderr)) == 3
    assert (tmp_path / "made.toml").read_text().count("trials disturbed\n") == 3
    assert "; 2 of 8 trials disturbed\n" in (tmp_path / "made.toml").read_text()


def test_a_few_disturbed_trials_are_no_reason_to_refuse(command, tmp_path):
    one, *others = trials(*STEADY)
    save(tmp_path / "run", [beside_others(one), *others])
    done = command("suite", "accept", "run", "--write=made.toml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "reference of 1 case: made.toml\n", "")
    assert "; 1 of 6 trials disturbed\n" in (tmp_path / "made.toml").read_text()


@pytest.mark.slow
def test_a_machine_as_good_as_the_reference_passes_all_cases_with_95_percent(derive):
    rng = np.random.default_rng(11)
    passed = 0
    for number in range(200):
        old, new = (
            [trials(*np.exp(rng.normal(0, 0.02, 6)), seed=seed, run=f"{name}{number}") for seed in range(6)]
            for name in ("old", "new")
        )
        cases, _, _ = draft(Cases.of(record for several in old for record in several), "samples_per_s", None, derive)
        wanted = [expected(each.limit, trials=6, **each.match) for each in cases]
        found = accept(wanted, [record for several in new for record in several], (), derive)
        passed += all(each.verdict == "PASS" for each in found.outcomes)
    assert passed >= 188


def test_a_bound_near_the_median_makes_the_verdict_unsure(derive):
    wide = trials(0.8, 0.9, 1.0, 1.0, 1.1, 1.2)  # 2.5 to 1.67 samples a second
    (near,) = accept([expected(1.9)], wide, (), derive).outcomes
    assert (near.verdict, near.near, near.low, near.high) == ("PASS", True, pytest.approx(1 / 0.6), 2.5)
    assert near.doubts == [
        "the bound 1.9 lies within the 95% interval of the median, 1.66667 to 2.5: "
        "borderline, another run may be judged otherwise; run more trials to decide"
    ]
    (failed,) = accept([expected(2.1)], wide, (), derive).outcomes
    assert (failed.verdict, failed.near) == ("FAIL", True)
    for bound, verdict in ((1.5, "PASS"), (2.6, "FAIL")):
        (far,) = accept([expected(bound)], wide, (), derive).outcomes
        assert (far.verdict, far.near, far.doubts) == (verdict, False, [])


def test_few_trials_are_judged_by_their_range(derive):
    (few,) = accept([expected(1.9)], trials(1.0, 0.9, 1.1), (), derive).outcomes
    assert (few.near, few.low, few.high) == (True, None, None)
    assert few.doubts[0].startswith("the bound 1.9 lies within the range of only 3 trials, 1.81818 to 2.22222: ")
    (single,) = accept([expected(1.9)], trials(1.0), (), derive).outcomes
    assert (single.near, single.doubts) == (False, ["a single trial shows no scatter"])


def test_disturbed_trials_are_told_beside_the_verdict(derive):
    busy = msgspec.structs.replace(QUIET, other_busy_cores=80.0)
    records = [msgspec.structs.replace(record, interference=busy) for record in trials(*STEADY)]
    (outcome,) = accept([expected(1.0)], records, (), derive).outcomes
    assert outcome.verdict == "PASS"
    assert outcome.doubts == [
        "6 of 6 trials were disturbed, for instance: other processes kept 80.0 cores busy (6 trials); "
        "stop other work on the machine, then repeat the run"
    ]


def test_doubts_are_printed_and_stand_in_the_xml(command, stored, tmp_path):
    (tmp_path / "reference.toml").write_text("[[case]]\nmatch = {seed = 0}\nmin = 1.5\n")
    done = command("suite", "accept", "run", "--reference=reference.toml", "--junit=out.xml")
    doubt = "     but the bound 1.5 lies within the range of only 3 trials, 1 to 2: borderline"
    assert doubt in done.stdout
    assert done.stdout.endswith("PASSED: 1 of 1 passed; 1 borderline (another run may be judged otherwise)\n")
    assert doubt.strip() in ElementTree.parse(tmp_path / "out.xml").getroot()[0].findtext("testcase/system-out")
    (outcome,) = json.loads(command("suite", "accept", "run", "--reference=reference.toml", "--json").stdout)[
        "outcomes"
    ]
    assert outcome["near"] is True


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give --reference=FILE to check the records against, or --write=FILE to create one"),
        (["--reference=reference.toml", "--write=x.toml"], "give --reference=FILE to check"),
        (["--reference=reference.toml", "--metric=flop_per_s"], "--tolerance, --metric and --anyway need --write"),
        (["--write=x.toml", "--junit=x.xml"], "--junit and --json need --reference"),
        (["--reference=none.toml"], "cannot read none.toml: No such file"),
        (["--reference=reference.toml", "--junit=none/x.xml"], "cannot write none/x.xml: No such file"),
        (["--write=none/x.toml"], "cannot write none/x.toml: No such file"),
        (["--write=x.toml", "--metric=tokens_per_s"], "no configuration is left for the reference"),
        (["--write=x.toml", "--tolerance=2"], "--tolerance=2: not a share"),
    ],
)
def test_mistakes_are_told_in_one_line(command, stored, args, message):
    done = command("suite", "accept", "run", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_case_made_slow_on_purpose_fails_and_is_named(cli, tmp_path):
    quick = ["--framework=toy", "--problem=nap", "--blocks=3", "--trials=2", "--results=results"]
    assert cli("run", *quick, "--ms=1").returncode == 0
    assert cli("suite", "accept", "results", "--write=reference.toml", "--tolerance=50%").returncode == 0
    assert cli("suite", "accept", "results", "--reference=reference.toml").returncode == 0
    text = (tmp_path / "reference.toml").read_text()
    (tmp_path / "reference.toml").write_text(text.replace("ms = 1.0", "ms = 50.0").replace("ms=1.0", "ms=50.0"))
    quick[-1] = "--results=slow"
    assert cli("run", *quick, "--ms=50").returncode == 0
    done = cli("suite", "accept", "slow", "--reference=reference.toml", "--junit=out.xml")
    assert done.returncode == 1
    assert "FAIL nap ms=50.0 fault=none after=0: samples_per_s" in done.stdout
    assert re.search(r"the median is [\d.]+% below ", done.stdout)
    failure = ElementTree.parse(tmp_path / "out.xml").getroot().find("testsuite/testcase/failure")
    assert "below" in failure.get("message")
