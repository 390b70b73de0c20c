"""`benchmarker bisect`."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.cli.options.side import settings_of
from benchmarker.cli.options.target import targets
from benchmarker.cli.options.types import Integer, results_option
from benchmarker.comparing.formatting import Terms, ratio, sentence
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count
from benchmarker.hooks import registry
from benchmarker.library.bisecting import Bench, Bisection, bisect
from benchmarker.library.commits import Checkout, Repository, program_options
from benchmarker.library.judging import rules_of

MAX_ROUNDS = 100


@click.command("bisect")
@click.option("--good", metavar="REVISION", required=True, help="A commit before the change.")
@click.option("--bad", metavar="REVISION", default="HEAD", help="A commit after the change.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    metavar="FOLDER",
    help="The git repository.",
)
@click.option("--build", metavar="COMMAND", help="What a shell executes in the checkout of each commit, once.")
@click.argument("words", metavar="-- run [OPTIONS OF RUN]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--metric", metavar="NAME", help="Metric to compare. [default: the step time]")
@delta_option
@alpha_option
@click.option(
    "--max-rounds",
    type=Integer(min=8),
    default=MAX_ROUNDS,
    help="Maximum number of rounds of a comparison; a commit that is undecided then is skipped.",
)
@results_option()
@click.option("--resume", is_flag=True, help="Use the trials and builds of an interrupted search.")
@progress_options
@output_options(tables=False)
def command(
    good: str,
    bad: str,
    repo: Path,
    build: str | None,
    words: tuple[str, ...],
    metric: str | None,
    delta: float | None,
    alpha: float,
    max_rounds: int,
    results: Path,
    resume: bool,
) -> Output:
    """Find the commit since which a case is slower or faster: each step compares a commit with the good one, in turns.

    After -- is a `run` of a file or module of the repository, of a program, or of a --problem whose package or
    framework --build installs. Each commit has its own checkout, and with --build
    its own virtual environment, below --results; a commit that cannot be built is skipped. Your checkout is not
    touched.

      benchmarker bisect --good=v1.2 --build='pip install -e .' -- run softmax.py:fused --n=4096

    First, good and bad are compared: without a difference, the search ends. A wrong commit is named with a probability
    of at most --alpha, for all comparisons together (docs/bisect.md).

    The exit status is 1 if it cannot tell which commit it is.
    """
    if not words or words[0] != "run":
        raise UserError("write what is measured after --, as in: bisect --good=v1.2 -- run softmax.py:fused")
    repository = Repository(repo)
    commits = repository.between(good, bad)

    def settings(checkout: Checkout) -> Mapping[str, Any]:
        return settings_of(checkout.tree.parent.name[:12], _in_checkout(words[1:], checkout, repository.top), "")

    with Progress() as progress:
        bench = Bench(
            repository, build, settings, rules_of(metric, None, delta, alpha), results, resume, max_rounds, progress
        )
        found = bisect(bench, commits)
    return Output(_output(found), found.data, int(found.outcome == "cannot tell"), stored=f"records: {results}")


def _in_checkout(words: Sequence[str], checkout: Checkout, top: Path) -> list[str]:
    """Return the words of `run` with its file, or its program, in a checkout.

    A file that the commit does not have is copied there from the user's checkout.
    """
    if "--" in words:
        at = list(words).index("--")
        options, program = words[:at], list(words[at + 1 :])
        if any(word.partition("=")[0] == "--workdir" for word in options):
            raise UserError("bisect runs a program in the checkout of each commit; leave --workdir out")
        if program and "/" in program[0]:
            program[0] = str(checkout.tree / program[0])
        elif program and checkout.env:
            program[0] = shutil.which(program[0], path=str(checkout.env / "bin")) or program[0]
        return [*options, *program_options(checkout), "--", *program]
    files = targets(words)
    if not files and any(word.partition("=")[0] == "--problem" for word in words):
        _refuse_what_is_not_built(checkout)
        return [*words]
    if len(files) != 1:
        raise UserError("bisect measures one file or program of the repository; name it, as in: -- run softmax.py")
    name = _file(files[0])
    own = Path(name).absolute() if name.endswith(".py") else registry.source_file(name) or Path(name)
    if not own.is_relative_to(top):
        remedy = "copy it there" if name.endswith(".py") else "name a file, as in: -- run package/module.py:NAME"
        raise UserError(f"{name} is not in the repository {top}; {remedy}")
    there = checkout.tree / own.relative_to(top)
    if not there.exists():
        if not own.is_file():
            raise UserError(f"{name}: no such file")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(own, there)
    return [f"{there}{word[len(name) :]}" if word == files[0] else word for word in words]


def _file(target: str) -> str:
    return target if target.endswith(".py") else target.rpartition(":")[0]


def _refuse_what_is_not_built(checkout: Checkout) -> None:
    """Raise `UserError` if the build installed no package: every commit would measure what is installed here."""
    if not checkout.installed:
        raise UserError(
            "a --problem is measured as it is installed, the same for each commit; "
            "install the commit's package with --build, as in: --build='pip install .'"
        )


def _output(found: Bisection) -> Iterator[Part]:
    one = found.step.comparison if found.step else None
    if found.outcome == "commit" and found.step and one:
        side = found.step.baseline
        yield Text(str(found.suspects[0]), "  ")
        yield Text(f"  since then: {sentence(one, Terms.of(one))}", "    ")
        yield Text(f"  B/A {ratio(one)} against {side}", "    ")
    elif found.outcome == "no difference" and one:
        yield Text(f"no difference between good and bad: {sentence(one, Terms.of(one))}", "  ")
    else:
        yield Text(f"cannot tell: one of these commits ({found.reason})", "  ")
        yield from (Text(f"  {commit}", "    ") for commit in found.suspects)
    made = count(len(found.steps), "comparison")
    yield Text(f"{count(found.commits, 'commit')}, {made}, {count(len(found.skipped), 'commit')} skipped", "  ")
    for sha, reason in found.skipped.items():
        yield Text(f"  skipped {sha[:12]}: {reason}", "    ")
