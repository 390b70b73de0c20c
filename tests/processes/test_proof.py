"""A suite of claims: what comes of each, limits, going on, and what is left behind."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest
from support.toy import install

from benchmarker.hooks import registry

CLAIMS = """
    import os, time
    from benchmarker import Claim, NotHereError, Outcome, Proof, hookimpl

    def counted(setting):
        with open(setting.folder / "times", "a") as file:
            file.write("x")
        return Outcome("PASS", f"{len((setting.folder / 'times').read_text())} times on {setting.device}")

    def wrong(setting):
        return Outcome("FAIL", "1.07", "more than 1.01\\x1b[31m\\nin a second line")

    def absent(setting):
        raise NotHereError("no such card")

    def raising(setting):
        raise RuntimeError("a library broke")

    def dying(setting):
        os._exit(3)

    def hanging(setting):
        time.sleep(60)

    @hookimpl
    def make_proof():
        functions = (counted, wrong, absent, raising, dying)
        claims = [Claim(each.__name__, f"{each.__name__} holds", 30, each) for each in functions]
        return Proof("toy claims", "1 s", (*claims, Claim("hanging", "it ends", 2, hanging)))
"""


@pytest.fixture(autouse=True)
def toy_proof(tmp_path, monkeypatch):
    install(tmp_path / "site", "claims", {"suite.toy-proof": "claims"}, {"__init__.py": CLAIMS})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    registry.scan.cache_clear()


@pytest.mark.slow
def test_each_claim_has_its_verdict_and_reason(command, tmp_path):
    done = command("suite", "run", "toy-proof", "--device=cpu", "-o", "proof", "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    found = {each["name"]: (each["verdict"], each["figure"], each["reason"]) for each in summary["entries"]}
    log = "; see proof/claims"
    assert found == {
        "counted": ("PASS", "1 times on cpu", ""),
        "wrong": ("FAIL", "1.07", "more than 1.01\\x1b[31m in a second line"),
        "absent": ("not here", "", "no such card"),
        "raising": ("FAIL", "", f"it ended with status 1: RuntimeError: a library broke{log}/raising.log"),
        "dying": ("FAIL", "", f"it ended with status 3{log}/dying.log"),
        "hanging": ("FAIL", "", f"not finished after 2 s, its limit{log}/hanging.log"),
    }
    assert summary["left"] == []
    assert json.loads((tmp_path / "proof/summary.json").read_text()) == summary
    page = (tmp_path / "proof/summary.md").read_text()
    assert page.count("| FAIL |") == 4
    assert "| counted holds (`counted`) | PASS | 1 times on cpu | " in page
    assert "1 PASS, 4 FAIL, 1 not here; proof/summary.md" in done.stderr


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_repeats_what_is_asked(command):
    run = ("suite", "run", "toy-proof", "--only=counted,absent")
    assert command(*run, "--device=cpu").returncode == 0
    assert "PASS      counted  1 times" in command(*run, "--device=cpu").stdout
    assert "PASS      counted  2 times" in command(*run, "--device=cpu", "--again=counted").stdout
    assert command(*run, "--device=cpu", "--minutes=0.1").returncode == 0  # what is not here does not count as left
    assert "3 times on cuda" in command(*run).stdout  # what was found on another device is not known here


def test_what_proves_nothing_is_no_success(command):
    assert command("suite", "run", "toy-proof", "--only=absent", "--device=cpu").returncode == 1


def test_a_claim_begins_only_if_its_limit_fits_into_the_time(command):
    done = command("suite", "run", "toy-proof", "--minutes=0.1", "-o", "proof")
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["hanging"]
    assert "5 tests are left; the same command continues: counted, wrong, absent, raising, dying" in done.stderr


def test_an_interrupt_leaves_no_process_and_no_verdict(tmp_path):
    words = [sys.executable, "-m", "benchmarker", "suite", "run", "toy-proof", "--only=hanging,counted", "-o", "proof"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "counted" in process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert not (tmp_path / "proof/claims/hanging.json").exists()
    assert (tmp_path / "proof/claims/counted.json").exists()


def test_a_killed_parent_leaves_no_claim_behind(tmp_path):
    words = [sys.executable, "-m", "benchmarker", "suite", "run", "toy-proof", "--only=hanging,counted", "-o", "proof"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "counted" in process.stdout.readline()
        deadline = time.monotonic() + 10
        while not (started := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    assert started
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_the_list_shows_claims_and_plans(command):
    found = {each["name"]: each for each in json.loads(command("suite", "list", "--json").stdout)}
    assert (found["toy-proof"]["tests"], found["toy-proof"]["cases"]) == (6, None)
    assert (found["procurement"]["tests"], found["procurement"]["trials"]) == (None, 11)
    limits = json.loads(command("suite", "run", "toy-proof", "--dry-run", "--json").stdout)
    assert limits[-1] == {"name": "hanging", "statement": "it ends", "limit_s": 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy-proof", "--framework=jax"], "toy-proof is a proof, which has no --framework; leave it out"),
        (["procurement", "--again=x"], "procurement is a plan, which has no --again; leave it out"),
        (
            ["toy-proof", "--only=x"],
            "toy-proof has no test 'x'; it has: counted, wrong, absent, raising, dying, hanging",
        ),
        (["toy-prof"], "no suite is named 'toy-prof'; did you mean toy-proof?"),
        (["toy-proof", "-o", "/proc/proof"], "cannot write to /proc/proof: No such file or directory"),
    ],
)
def test_mistakes_are_told_in_one_line(command, words, message):
    done = command("suite", "run", *words)
    assert (done.returncode, done.stderr) == (2, f"benchmarker: error: {message}\n")
