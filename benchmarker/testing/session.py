"""The perf tests of a session of pytest: each is measured, compared and judged; and what is said of all at the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest

from benchmarker.api.errors import UserError
from benchmarker.comparing.formatting import Terms, ratio, sentence
from benchmarker.comparing.results import Family, Rules
from benchmarker.display.comparisons import family_output
from benchmarker.display.records import cases_output
from benchmarker.display.result import Part, Text, lines
from benchmarker.formatting import clean, share
from benchmarker.formatting import part as part_of
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.judging import rules_of
from benchmarker.library.measuring import measured
from benchmarker.records.plan import make_plan
from benchmarker.records.step_times import STEP_TIME
from benchmarker.tables.table import Table
from benchmarker.testing.baselines import Outcome, Revision, Stored
from benchmarker.testing.cases import PerfTest
from benchmarker.testing.progress import Beside
from benchmarker.worker.perf_tests import told

if TYPE_CHECKING:
    from benchmarker.running.context import Listener

OPTION = "--benchmarker"
TRIALS, MAX_ROUNDS = 10, 30
MOST_NOTES = 6
"""Notes on several comparisons that are printed without -v."""
WIDER = "a wider terminal shows"
"""What shows the columns for which there was no room."""
_NEEDED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "build": ((Revision,), "a git revision"),
    "max-rounds": ((Revision,), "a git revision"),
    "trials": ((Stored, NoneType), "stored records; a revision is measured until there is a verdict"),
    "delta": ((Stored, Revision), "a comparison"),
    "alpha": ((Stored, Revision), "a comparison"),
}
"""The baselines that options need, in words."""


@dataclass
class PerfTests:
    """The perf tests of a session: how they are measured, and what they have measured by now.

    `number` is how many there are: α is divided among them.
    """

    config: pytest.Config
    results: Path
    baseline: Stored | Revision | None
    rules: Rules
    trials: int
    rounds: int
    number: int = 1
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @classmethod
    def of(cls, config: pytest.Config, mode: str, given: Mapping[str, str]) -> PerfTests:
        """Begin with the options that are given; raises `UserError` if one is wrong."""
        folder = config.invocation_params.dir
        results = folder / given.get("results", "results")
        named = given.get("baseline")
        baseline: Stored | Revision | None = None
        if (mode == "compare") != (named is not None):
            remedy = f"name one with {OPTION}-baseline=RESULT or REVISION" if mode == "compare" else "leave it out"
            raise UserError(f"{OPTION}={mode} compares with {'a' if mode == 'compare' else 'no'} baseline: {remedy}")
        if named is not None and (folder / named).exists():
            if results.resolve().is_relative_to((folder / named).resolve()):
                raise UserError(f"{OPTION}-baseline={named}: new records go there; name another {OPTION}-results")
            baseline = Stored.of(f"{OPTION}-baseline", folder / named)
        elif named is not None:
            baseline = Revision.of(f"{OPTION}-baseline", named, config.rootpath, given.get("build"), results)
        for name, (kinds, what) in _NEEDED.items():
            if name in given and not isinstance(baseline, kinds):
                raise UserError(f"{OPTION}-{name} is for {what}; leave it out")
        delta, alpha = (_converted(name, given.get(name), share) for name in ("delta", "alpha"))
        return cls(
            config,
            results,
            baseline,
            rules_of(delta=delta, **({} if alpha is None else {"alpha": alpha})),
            _converted("trials", given.get("trials"), _whole) or TRIALS,
            _converted("max-rounds", given.get("max-rounds"), _whole) or MAX_ROUNDS,
        )

    def begin(self, number: int) -> None:
        """Note how many tests there will be, and build the revision that they are compared with."""
        self.number = max(1, number)
        if number and isinstance(self.baseline, Revision):
            with Beside(self.config) as progress:
                progress.show(f"preparing {self.baseline.name!a}")
                _ = self.baseline.checkout

    def measure(self, item: pytest.Item, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Measure the function of a test; the test fails if that fails, or if it is slower than the baseline."""
        try:
            with chdir(self.config.invocation_params.dir), warnings.catch_warnings(), Beside(self.config) as progress:
                warnings.simplefilter("default")  # what the tests make an error of is no concern of the measurement
                outcome = self._outcome(PerfTest.of(item), function, arguments, progress)
        except UserError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        self.outcomes[item.nodeid] = outcome
        item.user_properties += _properties(outcome)
        if errors := [each.error.message for each in outcome.records if each.error]:
            failed = f"{part_of(len(errors), len(outcome.records), 'trial')} failed"
            if len(errors) == len(outcome.records):
                pytest.fail(f"{failed}: {errors[0]}", pytrace=False)
        if outcome.comparison and outcome.comparison.verdict == "slower":
            pytest.fail(f"slower: {_said(outcome)}", pytrace=False)

    def _outcome(
        self, test: PerfTest, function: Callable[..., Any], arguments: tuple[Any, ...], listener: Listener
    ) -> Outcome:
        problem = test.problem(self.config.invocation_params.dir)
        case, place = test.case(problem, function, arguments), test.place(self.config)
        name = f"{test.file.name}::{test.node}"
        rules = replace(self.rules, alpha=self.rules.alpha / self.number)
        if isinstance(self.baseline, Revision):
            return self.baseline.outcome(name, case, test.file, place, rules, self.rounds, self.results, listener)
        with told({problem: place}):
            made = measured(make_plan([case], test.trials or self.trials), self.results, False, listener)
        return self.baseline.outcome(name, made.records, rules) if self.baseline else Outcome(made.records)

    def summarise(self, reporter: pytest.TerminalReporter) -> None:
        """Print the figures of all tests; with -q, only what is doubtful."""
        if not self.outcomes:
            return
        if reporter.verbosity >= 0:
            reporter.section("perf tests")
        for part in self._parts(reporter.verbosity) if reporter.verbosity >= 0 else self._doubts(undecided=True):
            for line in lines(part):
                reporter.write_line(line)
        if reporter.verbosity >= 0:
            reporter.write_line(f"records: {clean(str(self.results))}")

    def _parts(self, verbosity: int) -> Iterator[Part]:
        comparisons = [each.comparison for each in self.outcomes.values() if each.comparison]
        if comparisons:
            family = Family(comparisons=comparisons, geometric_means=[], unmatched=[])
            notes = None if verbosity > 0 else MOST_NOTES
            for part in family_output(family, verbose=verbosity > 0, most_notes=notes):
                yield replace(part, remedy=WIDER) if isinstance(part, Table) else part
        else:
            records = [record for each in self.outcomes.values() for record in each.records]
            yield from cases_output(Cases.of(records), load_metrics(), remedy=WIDER)
        yield from self._doubts(undecided=False)

    def _doubts(self, *, undecided: bool) -> Iterator[Part]:
        for node, each in self.outcomes.items():
            if each.missing:
                yield Text(f"{node}: not compared: {each.missing}", "  ")
            elif undecided and each.comparison and each.comparison.verdict == "undecided":
                yield Text(f"{node}: {_said(each)}", "  ")
        if any(each.is_elsewhere for each in self.outcomes.values()):
            remedy = f"compare with a git revision, which is measured here in turns: {OPTION}-baseline=main"
            yield Text(f"a baseline of another machine proves nothing; {remedy}", "  ")


def _said(outcome: Outcome) -> str:
    """Return the verdict of a test in a sentence, with the ratio and its interval."""
    assert outcome.comparison is not None
    said = sentence(outcome.comparison, Terms.of(outcome.comparison))
    return clean(f"{said}; B/A {ratio(outcome.comparison)}")


def _properties(outcome: Outcome) -> list[tuple[str, object]]:
    """Return the figures of a test, as JUnit XML has them."""
    one, derive = outcome.comparison, load_metrics()
    named: dict[str, object] = {}
    times = [value for each in outcome.records if (value := derive(each)[STEP_TIME].value) is not None]
    if times:
        named |= {"step_time_s": median(times), "trials": len(times)}
    if one:
        named |= {"verdict": one.verdict, "ratio": one.ratio, "low": one.low, "high": one.high}
        named |= {"provisional": one.provisional}
    if outcome.missing:
        named["not_compared"] = outcome.missing
    return [(f"benchmarker.{name}", value) for name, value in named.items() if value is not None]


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("not a number from 1")
    return int(text)


def _converted(name: str, text: str | None, convert: Callable[[str], Any]) -> Any:
    try:
        return None if text is None else convert(text)
    except ValueError as error:
        raise UserError(f"{OPTION}-{name}={text}: {error}") from None
