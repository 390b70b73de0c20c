"""The pages say what is so: help as printed, commands that parse, links that lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from support.commands import parsed

from benchmarker.cli.commands import FORMER

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks/README.md"]
PAGES += sorted(ROOT.glob("examples/*/README.md"))
README = PAGES[0].read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def commands():
    """Every command line of this tool in a shell block of any page, continued lines joined."""
    for page in PAGES:
        for language, body in FENCE.findall(page.read_text()):
            if language not in ("sh", "console"):
                continue
            for line in body.replace("\\\n", " ").splitlines():
                if found := re.match(r"(?:\$ )?(?:python -m )?benchmarker (.*)", line):
                    yield pytest.param(shlex.split(found[1], comments=True), id=f"{page.name}: {line}")


def unreleased():
    """The changes since the last release, without the one that lists the former names of commands."""
    text = (ROOT / "CHANGELOG.md").read_text().partition("## Unreleased")[2].partition("\n## ")[0]
    return "\n- ".join(each for each in text.split("\n- ") if "former names" not in each)


@pytest.mark.parametrize("page", [*PAGES, None], ids=lambda page: page.name if page else "Unreleased")
def test_no_page_has_a_former_name_of_a_command(page):
    text = page.read_text() if page else unreleased()
    code = [line for _, body in FENCE.findall(text) for line in body.splitlines()]
    lines = [each for line in code if (each := re.sub(r"^\$ ", "", line)).startswith(("benchmarker ", "python -m "))]
    fields = {"kernels", "scopes", "ops", "trace"}  # of a record, or parts of a step
    for each in [*lines, *re.findall(r"`([^`\n]+)`", FENCE.sub("", text))]:
        bare = re.sub(r"^(python -m )?benchmarker ", "", each)
        first = bare.split()[0] if bare.split() else ""
        assert first not in FORMER or (each == first and first in fields), each


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_on_a_page_parses(words):
    if "--help" not in words and not {"scipy", "logreg"} & set(re.findall(r"\w+", " ".join(words))):
        parsed(*words)


def test_the_help_on_the_pages_is_what_is_printed(program):
    found = [
        each
        for page in PAGES
        for each in re.findall(
            r"^```console\n\$ python -m benchmarker ([^\n]*--help)\n(.*?)^```", page.read_text(), re.M | re.S
        )
    ]
    assert [words for words, _ in found] == ["--help", "table --help"]
    for words, text in found:
        assert program(*shlex.split(words), env={"COLUMNS": "80", "PYTHONPATH": ""}).stdout == text


def test_make_targets_on_the_page_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^(?:\$ )?make ([a-z-]+)", README, re.M))
    assert {"bench", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
