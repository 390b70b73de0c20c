"""`compare` in continuous integration: annotations and summary of GitHub Actions, and JUnit XML."""

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from support.commands import parsed
from support.records import make_record

from benchmarker.files import atomic

ROOT = Path(__file__).parents[3]
CI = ROOT / "examples" / "ci"
RATIOS = {"slow|er": 1.5, "same": 1.0, "unclear": None}
"""Three cases: one takes half as long again, one the same time, and of one a round says this and the next that."""


@pytest.fixture
def run(tmp_path):
    """A run of two seeds in twelve rounds: for each precision, B takes so many times as long as A."""
    folder = tmp_path / "run"
    folder.mkdir()
    for number, (model, ratio) in enumerate(RATIOS.items()):
        for trial in range(12):
            for side in (0, 1):
                factor = (ratio or (0.8, 1.25)[trial % 2]) if side else 1.0
                record = make_record(
                    factor * (1 + trial / 1000),
                    run="run",
                    trial=trial,
                    case={"seed": side, "params": {"model": model}},
                    design={"case_number": 2 * number + side},
                )
                record = msgspec.structs.replace(record, trial_id=f"{record.trial_id}-{number}-{side}")
                atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder


def test_github_gets_a_summary_and_annotations(command, run, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = command("compare", "run", "--by=seed", "--format=github", "--fail-on=slower")
    assert done.returncode == 1
    errors, warnings = (
        [line for line in done.stdout.splitlines() if line.startswith(f"::{kind} title=")]
        for kind in ("error", "warning")
    )
    assert [error.split(" ")[1].partition("=")[2] for error in errors] == ["nap", "geometric"]
    assert "model=slow|er" in errors[0]
    assert "takes 50.00%25 longer than seed=0" in errors[0]  # % is escaped
    assert "geometric mean%3A seed=1" in errors[1]  # in a title, so is a colon
    assert any("unclear" in line and "undecided" in line for line in warnings)
    assert not any("same" in line.split("::")[1] for line in (*errors, *warnings))
    text = summary.read_text()
    assert text.startswith("before\n")
    assert "\n| :--- " in text
    assert "slow\\|er" in text  # in a table, | would begin another cell
    assert "| :--- " not in done.stdout


def test_without_a_job_the_summary_is_printed(command, run, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    done = command("compare", "run", "--by=seed", "--format=github")
    assert done.returncode == 0
    assert "| :--- " in done.stdout
    assert "::error" not in done.stdout


def test_a_summary_that_cannot_be_written_is_one_line(command, run, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    done = command("compare", "run", "--by=seed", "--format=github")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("cannot write the summary: Is a directory")


def test_junit_has_a_case_for_each_verdict(command, run, tmp_path):
    (run / "20200101T000000-broken.json").write_text("{")
    done = command("compare", "run", "--by=seed", "--junit=ab.xml", "--fail-on=slower")
    assert done.returncode == 1
    (suite,) = ElementTree.parse(tmp_path / "ab.xml").getroot()
    outcomes = {}
    for case in suite:
        names = [name for name in (*RATIOS, "geometric mean", "broken") if name in case.get("name")]
        outcomes[names[0]] = [child.tag for child in case]
    assert {name: outcomes[name] for name in (*RATIOS, "broken")} == {
        "slow|er": ["failure"],
        "same": ["system-out"],
        "unclear": ["skipped"],
        "broken": ["error"],
    }
    assert "takes 50.00% longer" in next(case for case in suite if case.find("failure") is not None)[0].get("message")
    assert {float(case.get("time")) > 0 for case in suite if any(name in case.get("name") for name in RATIOS)} == {True}


@pytest.mark.parametrize("option", ["--junit=ab.xml", "--format=github"])
def test_two_traces_give_no_verdict(command, tmp_path, option):
    traces = [ROOT / "tests/fixtures/traces/torch-dp.rank0.json.gz"] * 2
    done = command("compare", *map(str, traces), option)
    assert (done.returncode, "gives no verdict" in done.stderr) == (2, True)


@pytest.mark.parametrize("file", ["github/action.yml", "gitlab.yml"])
def test_a_template_is_valid_and_its_commands_parse(file, monkeypatch):
    yaml = pytest.importorskip("yaml")
    template = yaml.safe_load((CI / file).read_text())
    steps = template["runs"]["steps"] if "runs" in template else template["performance"]["script"]
    lines = [step if isinstance(step, str) else step.get("run", "") for step in steps]
    assert all("run" not in step or step["shell"] == "bash" for step in steps if isinstance(step, dict))
    commands = [line.removeprefix("python -m benchmarker ") for line in lines if "benchmarker" in line]
    assert [command.split()[0] for command in commands] == ["ab", "compare"]
    monkeypatch.chdir(ROOT / "examples" / "own-code")
    for command in commands:
        assert "${{" not in command  # the shell would run what an input says
        filled = re.sub(r'"?(performance-base/)?\$FILE"?', "softmax.py", command).replace('"$DELTA"', "5%")
        parsed(*shlex.split(filled))
