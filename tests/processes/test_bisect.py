"""`bisect` over a repository with a real slow-down, in real processes."""

import json
import subprocess

import pytest

CASE = """import time

import numpy as np

from package import SECONDS


def inputs(n=64):
    return np.ones(n)


def doubled(x):
    time.sleep(SECONDS)
    return 2 * x
"""


@pytest.mark.slow
def test_the_commit_is_found_and_a_resumed_search_measures_nothing_again(command, tmp_path):
    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main", ".")
    (tmp_path / "source").mkdir()
    for number in range(9):
        seconds = 0.02 if number < 6 else 0.04
        (tmp_path / "source/package.py").write_text(f"SECONDS = {seconds}  # {number}\n")
        git("add", "source")
        git("commit", "-qm", f"change {number}")
    (tmp_path / "case.py").write_text(CASE)  # no commit has it
    # What a build installs is found: here it links its package into the environment of the commit.
    build = "cp source/package.py $(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    words = ("bisect", "--good=HEAD~8", f"--build={build}", "--json", "--resume", "--", "run", "case.py:doubled")
    options = ("--framework=numpy", "--blocks=3", "--seconds=0.05", "--power=none")
    done = command(*words, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["outcome"], found["commit"]["subject"]) == ("commit", "change 6")
    assert found["comparison"]["verdict"] == "slower"
    assert 1.7 < found["comparison"]["ratio"] < 2.2
    assert found["skipped"] == {}
    records = sorted((tmp_path / "results").glob("*-*/*/*.json"))
    assert json.loads(command(*words, *options).stdout)["commit"] == found["commit"]
    assert sorted((tmp_path / "results").glob("*-*/*/*.json")) == records
    assert (tmp_path / "source/package.py").read_text() == "SECONDS = 0.04  # 8\n"
