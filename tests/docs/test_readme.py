"""The pages say what is so: help as printed, commands that parse, links that lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from support.commands import parsed

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
