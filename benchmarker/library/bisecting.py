"""Find the commit since which a case is slower or faster: commits measured in turns with the good one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarker.api.errors import UserError
from benchmarker.api.program import is_program
from benchmarker.comparing import matching
from benchmarker.comparing.bisection import Search, is_clear, most, place, planned, threshold
from benchmarker.comparing.formatting import ratio
from benchmarker.comparing.judge import Referee
from benchmarker.comparing.judge import compare as compare_matches
from benchmarker.comparing.results import Comparison, Rules
from benchmarker.hooks import launchers
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.library.commits import BUILDS, BuildError, Checkout, Commit, Repository
from benchmarker.library.judging import pairs_of
from benchmarker.planning.cases import same_device
from benchmarker.records import store
from benchmarker.records.plan import Plan, make_plan
from benchmarker.running.context import Listener
from benchmarker.running.run import execute
from benchmarker.running.trial import not_begun
from benchmarker.stats.shift import fewest
from benchmarker.stats.verdict import looks_at

Outcome = Literal["commit", "no difference", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Step:
    """A comparison of two commits, the first of which is the baseline."""

    baseline: Commit
    contender: Commit
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Bisection:
    """What was found: the commit and how it compares with the one before it, or why none is named.

    `suspects` are the commits of which one is the first that differs, of which there is one if it is named.
    """

    outcome: Outcome
    suspects: Sequence[Commit]
    step: Step | None
    reason: str
    steps: Sequence[Step]
    skipped: Mapping[str, str]
    commits: int
    alpha: float

    @property
    def data(self) -> dict[str, Any]:
        """The value that the command prints as JSON."""
        return {
            "outcome": self.outcome,
            "commit": self.suspects[0] if self.outcome == "commit" else None,
            "comparison": self.step.comparison if self.step else None,
            "suspects": self.suspects,
            "reason": self.reason or None,
            "steps": self.steps,
            "skipped": self.skipped,
            "commits": self.commits,
            "alpha": self.alpha,
            "alpha_of_a_comparison": self.alpha / planned(self.commits),
        }


class _Referee(Referee):
    """Ends the rounds of a comparison when it answers what the search asks."""

    answers: Callable[[Comparison], bool]

    def settled(self, comparison: Comparison) -> bool:
        """See `Referee`."""
        return bool(comparison.refused) or self.answers(comparison)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where commits are built and compared: `settings_of` returns the settings of a case in a checkout."""

    repository: Repository
    build: str | None
    settings_of: Callable[[Checkout], Mapping[str, Any]]
    rules: Rules
    results: Path
    resume: bool
    max_rounds: int
    listener: Listener

    def checkout(self, commit: Commit) -> Checkout:
        """Return a commit, checked out and built; raises `BuildError`."""
        return self.repository.checkout(commit, self.build, self.results / BUILDS, self.resume)

    def compare(self, one: Commit, two: Commit, answers: Callable[[Comparison], bool]) -> Step:
        """Compare two commits in rounds, until the comparison answers or there are `max_rounds`; raises `BuildError`.

        A trial is a fresh process, because two versions of a package cannot be imported by one.
        """
        checkouts = [self.checkout(commit) for commit in (one, two)]
        self.listener.say(f"comparing {two} with {one.sha[:12]}")
        return Step(one, two, self._compared(one, two, checkouts, answers))

    def _compared(
        self, one: Commit, two: Commit, checkouts: Sequence[Checkout], answers: Callable[[Comparison], bool]
    ) -> Comparison:
        first, second = (
            (commit.sha[:12], self.settings_of(each)) for commit, each in zip((one, two), checkouts, strict=True)
        )
        cases, _ = pairs_of(first, second)
        if len(cases) != 2:
            raise UserError(f"bisect compares one case, and there are {len(cases) // 2}; name one function, one value")
        derive = load_metrics()
        if all(settings.get("device", "auto") == "auto" for _, settings in (first, second)):
            same_device(cases)
        refuse_unknown([self.rules.metric], [not_begun(cases[0])], derive)
        planned_looks = looks_at(self.rules.alpha, self.max_rounds)
        plan = make_plan(cases, self.max_rounds, looks=planned_looks)
        referee = _Referee(self.rules, derive, planned_looks, None, None, self.listener.say)
        referee.answers = answers
        packages = [] if is_program(cases[0].problem) else [each.packages for each in checkouts]
        with self._run(self.results / f"{one.sha[:12]}-{two.sha[:12]}", plan) as folder:
            records = execute(folder, self.listener, launchers.allocation(), referee, packages=packages)
        (match,) = matching.within(records).matches
        match = replace(
            match,
            baseline=replace(match.baseline, name=one.sha[:12]),
            contender=replace(match.contender, name=two.sha[:12]),
        )
        (comparison,) = compare_matches([match], self.rules, derive).comparisons
        if 0 in comparison.trials:
            side = (one, two)[comparison.trials.index(0)]
            errors = [each.error.message for each in records if each.error]
            raise BuildError(f"every trial of {side.sha[:12]} failed: {errors[0] if errors else 'no reason is known'}")
        return comparison

    @contextmanager
    def _run(self, results: Path, plan: Plan) -> Iterator[store.RunFolder]:
        """Lock a new run, or with `resume` the newest one of the same plan: what it has is not measured again."""
        earlier = next(store.same_runs(results, plan, []), None) if self.resume else None
        with store.continued(earlier) if earlier else store.new_run(results, plan) as folder:
            yield folder


def bisect(bench: Bench, commits: Sequence[Commit]) -> Bisection:
    """Find the first commit that differs from the first of `commits`, the good one, as the last does.

    The error rate is that of `benchmarker.comparing.bisection`: a wrong commit is named with a probability of at most
    `bench.rules.alpha`. Raises `UserError` if good or bad cannot be built or measured, or if there are too few rounds.
    """
    alpha, number = bench.rules.alpha, len(commits) - 1
    least = fewest(alpha / planned(number), is_paired=True)
    if bench.max_rounds < least:
        raise UserError(
            f"--max-rounds={bench.max_rounds} can decide nothing; for {number} commits, give {least} or more"
        )
    bench = replace(bench, rules=replace(bench.rules, alpha=alpha / planned(number)))
    good, bad = commits[0], commits[-1]
    skipped: dict[str, str] = {}
    try:
        steps = [bench.compare(good, bad, is_clear)]
    except BuildError as error:
        raise UserError(f"--good and --bad must both build and run: {error}") from error

    def found(outcome: Outcome, suspects: Sequence[Commit], step: Step | None, reason: str = "") -> Bisection:
        return Bisection(outcome, suspects, step, reason, steps, skipped, number, alpha)

    first = steps[0].comparison
    if first.verdict == "same":
        return found("no difference", [], steps[0])
    limit = threshold(first)
    if first.verdict == "undecided" or limit is None:
        why = f"good against bad is undecided after {bench.max_rounds} rounds; allow more with --max-rounds"
        return found("cannot tell", commits[1:], steps[0], why)
    search, of_bad = Search(0, number), {number: steps[0]}
    while (asked := search.next()) is not None and len(steps) < most(number) - 1:
        commit = commits[asked]
        try:
            step = bench.compare(good, commit, lambda one: place(one, limit) != "undecided")
        except BuildError as error:
            skipped[commit.sha] = str(error)
            search.tell(asked, "undecided")
            bench.listener.say(f"skipped {commit}: {error}")
            continue
        steps.append(step)
        where = place(step.comparison, limit)
        if where == "undecided":
            skipped[commit.sha] = f"undecided after {bench.max_rounds} rounds: {ratio(step.comparison)}"
        elif where == "bad":
            of_bad[asked] = step
        bench.listener.say(f"{commit}: {'skipped, undecided' if where == 'undecided' else f'like {where}'}")
        search.tell(asked, where)
    suspects = [commits[each] for each in search.suspects]
    if len(suspects) > 1:
        return found("cannot tell", suspects, None, f"{len(skipped)} of the commits between were skipped")
    if search.good == 0:
        return found("commit", suspects, of_bad[search.bad])

    def agrees(one: Comparison) -> bool:
        nearer = threshold(one)
        return nearer is not None and nearer * limit > 0

    last = bench.compare(commits[search.good], suspects[0], agrees)
    steps.append(last)
    if not agrees(last.comparison):
        why = f"against the commit before it, its difference is not confirmed: {ratio(last.comparison)}"
        return found("cannot tell", suspects, last, why)
    return found("commit", suspects, last)
