"""The examples of docs/examples show what commands print of the records beside them, and the commits that are made."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.shown import holds

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.md"))
HOOKS = runpy.run_path(str(ROOT / "docs/hooks.py"))


def shown(text):
    """Each command in a console block of a page, with what is shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, below = part.partition("\n")
            yield line.removeprefix("python -m benchmarker "), below


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_shows_what_its_commands_print(page, command, tmp_path):
    text = page.read_text()
    HOOKS["inside"](tmp_path, ROOT)
    _, making = HOOKS["reports"](text)
    for words in making:
        if words[0] == "bundle":
            assert command(*words).returncode == 0
    checked = list(shown(text))
    for line, below in checked:
        words = [found for word in shlex.split(line) for found in (sorted(map(str, Path().glob(word))) or [word])]
        done = command(*words)
        printed = done.stdout + done.stderr
        assert holds(below, printed), f"benchmarker {line} now prints:\n{printed}"
    assert checked


def test_the_reports_of_a_page_are_those_that_it_links_to():
    text = (
        "[x](x.html)\n```sh\npython -m benchmarker report a -o x.html\npython -m benchmarker report b -o y.html\n```\n"
    )
    assert HOOKS["reports"](text) == (["x.html"], [["report", "a", "-o", "x.html"]])
    assert HOOKS["reports"]("python -m benchmarker bundle unpack docs/examples/a.zip\n") == ([], [])


def test_the_commits_of_the_example_are_those_that_are_made(tmp_path):
    folder = tmp_path / "softmax"
    subprocess.run([sys.executable, ROOT / "docs/examples/make_commits.py", folder], check=True)

    def git(*words):
        return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout

    log = dict(line.split(" ", 1) for line in git("log", "--format=%H %s").splitlines())
    assert len(log) == 12
    text = (ROOT / "docs/examples/which-commit.md").read_text()
    named = set(re.findall(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,12}\b", text))
    assert {"5d802d9", "29c10796b63d", "978f2a3b471b"} <= named
    for sha in named:
        (full,) = [each for each in log if each.startswith(sha)]
        assert f"{sha} {log[full]}" in text or sha not in re.findall(r"^(\w{12}) [A-Z]", text, re.M)
    assert "astype" in git("show", "29c10796b63d")
    assert "astype" not in git("show", "978f2a3b471b:softmax.py")
