"""The check of a run as handed in: each thing that is missing, failed, changed or invalid is in its list."""

import json
from pathlib import Path

import msgspec
import pytest
from support.records import make_energy, make_record, with_formulas

from benchmarker import Case, Measuring, UserError
from benchmarker.bundles.pack import bundle
from benchmarker.bundles.unpack import unbundle
from benchmarker.files import atomic
from benchmarker.hooks import parameters, registry
from benchmarker.procurement.submission import check, expected_suite
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.records.record import Failure

RUN = "20260102T030405.678901-89abcdef"
SUITE = """
version = "2"
problem = "gemm"
trials = 2
[measuring]
blocks = 1
[axes]
framework = ["numpy", "torch"]
[[case]]
name = "small"
m = 64
"""


def write(folder: Path, *records) -> None:
    for record in records:
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))


def read(folder: Path):
    return {(each.design.case_number, each.trial): each for each in store.read([folder])[0]}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "gemms.toml").write_text(SUITE)
    return tmp_path / "gemms.toml"


@pytest.fixture
def run(suite: Path, tmp_path: Path) -> Path:
    """A complete run of the suite: two cases with two trials each, made without a worker."""
    planned = expected_suite(str(suite))
    problem = registry.problem("gemm")
    params = parameters.resolve(problem, {"m": 64}, "cpu")
    cases = [
        Case(problem="gemm", framework=name, device="cpu", params=params, measuring=Measuring(blocks=1))
        for name in ("numpy", "torch")
    ]
    numbered = [msgspec.structs.replace(each, case_numbers=[number]) for number, each in enumerate(planned.cases)]
    planned = msgspec.structs.replace(planned, cases=numbered)
    plan = msgspec.structs.replace(make_plan(cases, 2, seed=1, suite=planned), run_id=RUN)
    folder = tmp_path / "offer" / RUN
    folder.mkdir(parents=True)
    atomic.write(folder / "plan.json", atomic.encode(plan))
    for number, trial in plan.order:
        record = make_record(run=RUN, trial=trial, design={"case_number": number}, suite=planned.of(number))
        software = msgspec.structs.replace(record.software, commit="0123456789ab")
        write(folder, with_formulas(msgspec.structs.replace(record, case=cases[number], software=software)))
    return folder


def change_plan(folder: Path, change) -> None:
    path = folder / "plan.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def findings(folder: Path, suite: Path) -> list[tuple[str, str, str]]:
    (checked,) = check(folder, str(suite))
    return [(each.kind, each.of, each.what) for each in checked.findings]


def test_a_complete_run_has_no_findings(run, suite):
    (checked,) = check(run.parent, str(suite))
    assert (checked.run_id, str(checked.suite)) == (RUN, f"gemms 2 ({expected_suite(str(suite)).sha256[:12]})")
    assert checked.findings == []


def test_trials_that_are_absent_or_failed_are_counted_by_case(run, suite):
    records = read(run)
    (run / f"{records[0, 1].trial_id}.json").unlink()
    error = Failure("out_of_memory", "16 GiB are not enough", "build")
    write(run, msgspec.structs.replace(records[1, 0], status="failed", error=error))
    assert findings(run, suite) == [
        ("missing", "small (numpy)", "1 of 2 trials has no record"),
        ("failed", "small (torch)", "1 of 2 trials failed: out_of_memory: 16 GiB are not enough"),
    ]


def test_a_round_that_claims_to_be_of_another_run_is_invalid(run, suite, command):
    """Runs are the unit of a score's interval, so one run must not count as two."""
    record = read(run)[0, 1]
    write(run, msgspec.structs.replace(record, design=msgspec.structs.replace(record.design, session=1)))
    file = f"{record.trial_id}.json"
    assert findings(run, suite) == [("invalid", file, "it is of session 1, but its round of 0")]
    validated = command("validate", str(run))
    assert validated.returncode == 1
    assert f"{file}: not a trial of" in validated.stdout


@pytest.mark.parametrize(("start", "expected"), [("04:04:15", []), ("03:34:15", ["30 min instead of 60 min"])])
def test_a_pause_that_was_not_kept_is_named(run, suite, start, expected):
    change_plan(run, lambda plan: plan.update(sessions=2, pause_s=3600.0))
    for record in read(run).values():
        design = msgspec.structs.replace(record.design, session=record.trial)
        wall = msgspec.structs.replace(record.harness, wall_s=10.0)
        at = f"2026-01-02T{start if record.trial else '03:04:05'}Z"
        write(run, msgspec.structs.replace(record, design=design, started_at=at, harness=wall))
    pauses = [what for kind, of, what in findings(run, suite) if (kind, of) == ("changed", "plan.json")]
    assert pauses == [f"the pause before run 2 was {text}" for text in expected]


def test_a_case_that_is_left_out_is_missing_with_its_reason(run, suite):
    def leave_out(plan):
        plan["cases"] = plan["cases"][:1]
        plan["order"] = [[0, 0], [0, 1]]
        plan["suite"]["cases"][1]["case_numbers"] = []
        plan["left_out"] = ["framework=torch: it does not start"]

    for key, record in read(run).items():
        if key[0] == 1:
            (run / f"{record.trial_id}.json").unlink()
    change_plan(run, leave_out)
    assert findings(run, suite) == [
        ("missing", "small (torch)", "left out of the run"),
        ("missing", "plan.json", "left out: framework=torch: it does not start"),
    ]


def test_a_suite_that_was_changed_is_named_with_what_changed(run, suite, tmp_path):
    asked = tmp_path / "asked.toml"
    asked.write_text(SUITE.replace("trials = 2", "trials = 9").replace("blocks = 1", "blocks = 7"))
    assert findings(run, asked) == [
        ("changed", "suite", f"it is {expected_suite(str(suite)).id} instead of {expected_suite(str(asked)).id}"),
        ("changed", "suite", "trials 9 → 2"),
        ("changed", "suite", "small (numpy, torch): blocks 7 → 1"),
    ]


def test_a_case_that_is_not_what_its_suite_requests_is_named(run, suite):
    def cheat(plan):
        plan["cases"][0]["measuring"]["seconds"] = 3.0
        plan["cases"][0]["params"]["n"] = 8

    change_plan(run, cheat)
    case = store.read_plan(run / "plan.json").cases[0]
    changed = [msgspec.structs.replace(each, case=case) for key, each in read(run).items() if key[0] == 0]
    write(run, *map(with_formulas, changed))
    assert findings(run, suite) == [
        ("changed", "small (numpy)", "seconds 30.0 → 3.0"),
        ("changed", "small (numpy)", "n 1024 → 8"),
    ]


def test_a_case_that_the_suite_does_not_have_is_named(run, suite):
    change_plan(run, lambda plan: plan["suite"]["cases"][1].update(case_numbers=[]))
    write(
        run,
        *(
            msgspec.structs.replace(each, suite=msgspec.structs.replace(each.suite, case=None))
            for key, each in read(run).items()
            if key[0] == 1
        ),
    )
    found = findings(run, suite)
    assert ("missing", "small (torch)", "left out of the run") in found
    assert [each[2] for each in found if each[0] == "changed"] == ["the case is not in the suite"]


def test_a_suite_that_is_not_known_must_be_named(run, suite):
    (checked,) = check(run, None)
    assert [each.what for each in checked.findings] == [
        "no suite named 'gemms' comes with benchmarker; name its plan file with --suite"
    ]
    with pytest.raises(UserError, match="no suite is named 'zzz'"):
        check(run, "zzz")


def test_a_run_without_a_suite_is_told(run, suite):
    change_plan(run, lambda plan: plan.pop("suite"))
    reasons = read(run)[0, 0].reasons | {"suite": "none"}
    write(run, *(msgspec.structs.replace(each, suite=None, reasons=reasons) for each in read(run).values()))
    assert findings(run, suite) == [
        ("changed", "plan.json", "the run is not of a suite or a plan file; use `suite run` or `plan run`")
    ]


def test_damaged_and_inconsistent_records_are_named(run, suite):
    records = read(run)
    path = f"{records[0, 0].trial_id}.json"
    (run / path).write_text("{")
    halved = msgspec.structs.replace(records[1, 1].blocks, duration_ns=[5 * 10**8])
    write(run, msgspec.structs.replace(records[1, 1], blocks=halved))
    assert findings(run, suite) == [
        ("invalid", path, "Input data was truncated"),
        (
            "invalid",
            f"{records[1, 1].trial_id}.json",
            "its blocks take only 500 ms of the timed part of 1 s",
        ),
        ("missing", "small (numpy)", "1 of 2 trials has no record"),
    ]


def test_disturbed_trials_are_counted_with_what_disturbed_them(run, suite):
    records = read(run)
    busy = msgspec.structs.replace(records[0, 0].interference, other_busy_cores=3.0)
    write(run, msgspec.structs.replace(records[0, 0], interference=busy))
    told = "1 of 2 trials was disturbed, for instance: other processes kept 3.0 cores busy (1 trial)"
    assert findings(run, suite) == [("disturbed", "small (numpy)", told)]


def test_energy_and_profiles_are_missing_only_if_the_suite_requests_them(run, tmp_path):
    asked = tmp_path / "gemms.toml"
    asked.write_text(SUITE.replace("[measuring]", '[measuring]\npower = "auto"\nprofile = true'))
    suite = expected_suite(str(asked))

    def request(plan):
        plan["suite"] |= {"sha256": suite.sha256}
        for each in plan["suite"]["cases"]:
            each["settings"] |= {"power": "auto", "profile": True}
        for each in plan["cases"]:
            each["measuring"] |= {"power": "auto", "profile": True}

    change_plan(run, request)
    plan = store.read_plan(run / "plan.json")
    for (number, trial), record in read(run).items():
        changed = {"case": plan.cases[number], "suite": plan.suite_of(number)}
        if (number, trial) == (0, 0):
            energy = msgspec.structs.replace(make_energy(9.0), steps=1, samples=2)
            changed |= {"energy": energy}
        write(run, msgspec.structs.replace(record, **changed))
    found = [each for each in findings(run, asked) if each[0] == "missing"]
    why = read(run)[1, 1].reasons["energy"]
    assert found == [
        ("missing", "small (numpy)", f"1 of 2 trials has no energy: {why}"),
        ("missing", "small (numpy)", "2 of 2 trials have no profile: it was not profiled; use --profile"),
        ("missing", "small (torch)", f"2 of 2 trials have no energy: {why}"),
        ("missing", "small (torch)", "2 of 2 trials have no profile: it was not profiled; use --profile"),
    ]


def test_another_machine_other_software_and_uncommitted_changes_are_named(run, suite):
    record = read(run)[0, 0]
    machine = msgspec.structs.replace(record.machine, host="elsewhere")
    software = msgspec.structs.replace(record.software, commit="abc+changes", libraries={"numpy": "9"})
    write(run, msgspec.structs.replace(record, machine=machine, software=software))
    found = {of: what for kind, of, what in findings(run, suite) if "within the run" in what}
    assert found.keys() == {"machine", "benchmarker", "software of numpy"}
    assert "elsewhere (1 trial)" in found["machine"]
    assert "numpy 9 (1 trial)" in found["software of numpy"]
    told = "1 trial ran with changes that are in no commit (abc+changes)"
    assert ("changed", "benchmarker", told) in findings(run, suite)


def test_a_trial_that_was_measured_again_is_named(run, suite):
    order = store.read_plan(run / "plan.json").order
    for at, key in enumerate(order):
        record = read(run)[key]
        (run / f"{record.trial_id}.json").unlink()
        minute = 59 if at == 1 else at
        name = f"20260102T03{minute:02}00.000000-00000000"
        started_at = f"2026-01-02T03:{minute:02}:00Z"
        write(run, msgspec.structs.replace(record, trial_id=name, started_at=started_at))
    again = [each for each in findings(run, suite) if "measured after" in each[2]]
    told = f"trial {order[1][1]} was measured after the trials that follow it in the plan"
    assert [each[2] for each in again] == [told]


def test_a_bundle_is_checked_without_unpacking_it(run, suite, tmp_path):
    packed = bundle(run, tmp_path / "bid.zip").path
    before = set(tmp_path.rglob("*"))
    (checked,) = check(packed, str(suite))
    assert (checked.path, checked.run_id, checked.findings) == (str(packed), RUN, [])
    assert set(tmp_path.rglob("*")) == before
    packed.write_bytes(packed.read_bytes()[:-1])
    (found,) = check(packed, str(suite))[0].findings
    assert (found.kind, found.of) == ("invalid", "bid.zip")
    assert "is truncated or damaged" in found.what


def test_an_unpacked_run_is_checked_against_its_manifest(run, suite, tmp_path):
    folder = unbundle(bundle(run, tmp_path / "bid.zip").path, tmp_path / "theirs").folder
    (folder / "x.annotated.json.gz").write_text("made by `trace`")
    assert findings(folder, suite) == []
    record = next(folder.glob(f"{RUN}-*.json"))
    record.write_bytes(record.read_bytes() + b" ")
    (folder / "environment.json").unlink()
    (folder / "more.log").write_text("")
    assert findings(folder, suite) == [
        ("invalid", record.name, "changed: its SHA-256 differs from the manifest"),
        ("invalid", "environment.json", "in the manifest, but not here"),
        ("invalid", "more.log", "not in the manifest"),
    ]


def test_the_command_lists_findings_and_its_status_says_whether_there_are_any(command, run, suite, tmp_path):
    done = command("suite", "check", "offer", "--suite=gemms.toml")
    assert done.returncode == 0
    assert "complete, nothing is changed or disturbed" in done.stdout
    next(run.glob(f"{RUN}-*.json")).unlink()
    bundle(run, tmp_path / "bid.zip")
    done = command("suite", "check", "offer", "bid.zip", "--suite=gemms.toml")
    assert done.returncode == 1
    assert done.stdout.count("1 of 2 trials has no record") == 2
    assert "bid.zip: suite gemms 2" in done.stdout
    found = json.loads(command("suite", "check", "bid.zip", "--suite=gemms.toml", "--json").stdout)
    assert found[0]["findings"][0]["kind"] == "missing"
    for args, message in (
        (["nowhere"], "nowhere: no such file or folder"),
        ([str(suite.parent / "empty")], "contains no run"),
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        done = command("suite", "check", *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
