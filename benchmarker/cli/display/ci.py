"""Verdicts for continuous integration: the job summary and annotations of GitHub Actions, and JUnit XML."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.comparing.formatting import Terms, over_cases, sentence
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Comparison, Family, GeometricMean
from benchmarker.display.result import Part, Text
from benchmarker.files import atomic
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean
from benchmarker.procurement import junit
from benchmarker.tables.formats import markdown, markdown_text
from benchmarker.tables.table import Table

GITHUB = "github"
"""The value of `--format` for GitHub Actions."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable with the file to which a step of GitHub Actions appends its summary, in Markdown."""
_IN_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_MESSAGE, ":": "%3A", ",": "%2C"}
"""How workflow commands escape characters (GitHub's actions/toolkit, packages/core/src/command.ts)."""


def github_output(
    family: Family, parts: Iterable[Part], faults: Sequence[Fault], unwanted: Collection[str]
) -> Iterator[Part]:
    """Append the parts to the job summary, and yield annotations; without a job, yield the summary too.

    An error is a file that cannot be read, or a verdict that is `unwanted`; a warning is another one that is undecided
    or provisional. Raises `UserError` if the summary cannot be written.
    """
    summary = "\n".join(_block(part) for part in parts)
    if file := os.environ.get(SUMMARY):
        try:
            with Path(file).open("a", encoding="utf-8") as opened:
                opened.write(summary + "\n")
        except OSError as error:
            raise UserError(f"{SUMMARY}={file}: cannot write the summary: {error.strerror}") from error
    else:
        yield summary
    for fault in faults:
        yield _annotation("error", "unreadable", str(fault))
    for name, each, said in _judged(family):
        if each.verdict in unwanted:
            yield _annotation("error", name, said)
        elif each.verdict == "undecided" or each.provisional:
            yield _annotation("warning", name, said)


def write_junit(
    file: Path, family: Family, matches: Sequence[Match], faults: Sequence[Fault], unwanted: Collection[str]
) -> None:
    """Write a test case for each verdict and each file that cannot be read.

    A verdict that is `unwanted` has failed, another one that is undecided was skipped, and all others have passed. The
    time of a case is that of all its trials.
    """
    times_s = [
        sum(record.harness.wall_s for side in (match.baseline, match.contender) for record in side.records)
        for match in matches
    ]
    times_s += [0.0] * len(family.geometric_means)
    tests = [junit.Item(str(fault.path), 0.0, "error", str(fault)) for fault in faults]
    for (name, each, said), seconds in zip(_judged(family), times_s, strict=True):
        if each.verdict in unwanted:
            tests.append(junit.Item(name, seconds, "failure", said))
        elif each.verdict == "undecided":
            tests.append(junit.Item(name, seconds, "skipped", said))
        else:
            tests.append(junit.Item(name, seconds, output=said))
    atomic.save(file, junit.document("benchmarker compare", tests))
    click.echo(clean(f"junit: {file}"), err=True)


def _judged(family: Family) -> Iterator[tuple[str, Comparison | GeometricMean, str]]:
    """Yield each verdict with the name of its case, and as a sentence."""
    for each in family.comparisons:
        sides = f"{each.contender} against {each.baseline}"
        part = " ".join(f"{name}={value}" for name, value in each.case.items())
        yield " ".join(dict.fromkeys(filter(None, [each.name or part, sides]))), each, sentence(each, Terms.of(each))
    for mean in family.geometric_means:
        terms = Terms.of(family.comparisons[0])
        yield f"geometric mean: {mean.contender} against {mean.baseline}", mean, over_cases(mean, terms)


def _block(part: Part) -> str:
    """Return a part as a block of Markdown."""
    if isinstance(part, Table):
        return markdown(part)
    return f"{markdown_text(part.text.strip() if isinstance(part, Text) else part.strip())}\n"


def _annotation(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_escaped(title, _IN_PROPERTY)}::{_escaped(message, _IN_MESSAGE)}"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in clean(text))
