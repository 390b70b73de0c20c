"""From two configurations, or from stored records, to verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarker.api.errors import UserError, concerning
from benchmarker.api.problem import FUNCTION
from benchmarker.api.program import is_program
from benchmarker.comparing import matching, profiled_parts
from benchmarker.comparing.judge import AfterRound, Referee, classical
from benchmarker.comparing.judge import compare as compare_matches
from benchmarker.comparing.notes import suite_notes
from benchmarker.comparing.results import DELTAS, PROFILED, Classical, Family, Level, Rules, Verdict
from benchmarker.display.comparisons import classical_output, family_output
from benchmarker.display.records import Records
from benchmarker.display.result import Part, Result, Text
from benchmarker.hooks import launchers
from benchmarker.hooks.metrics import Derive, load_metrics, refuse_unknown
from benchmarker.library.measuring import description_of
from benchmarker.library.results import conditions, paths, refuse_empty, warn_of
from benchmarker.planning import build
from benchmarker.planning.cases import duet_trouble, refuse_emulated, same_device
from benchmarker.power import samplers
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.records.sides import short_names, side_of
from benchmarker.running.run import execute
from benchmarker.running.trial import not_begun
from benchmarker.stats.verdict import LOOKS, looks

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.api.case import Case
    from benchmarker.comparing.matching import Match
    from benchmarker.files.atomic import Fault
    from benchmarker.page.page_model import Figure
    from benchmarker.records.record import Record
    from benchmarker.running.context import Listener

Design = Literal["auto", "rounds", "duet"]
Unit = Literal["trial", "block"]


@dataclass(frozen=True, repr=False)
class Verdicts(Result):
    """Comparisons with their verdicts.

    `records` are those of a run of `ab`, which has its folder as `path` and says in `ended` why it ended; there are
    none of `compare`. `classical` are statistics of all timed blocks, where no test is possible or they are asked for.
    `faults` are the files that could not be read. `rules` and `derive` are what was compared.
    """

    family: Family
    classical: Sequence[Classical] | None = None
    matches: Sequence[Match] = ()
    faults: Sequence[Fault] = ()
    records: Sequence[Record] = ()
    path: Path | None = None
    ended: str = ""
    rules: Rules = field(default_factory=Rules)
    derive: Derive = field(default_factory=load_metrics)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the only comparison; raises `UserError` if there are several or none."""
        if len(self.family.comparisons) != 1:
            raise UserError(f"there are {len(self.family.comparisons)} comparisons; each in .family has a verdict")
        return self.family.comparisons[0].verdict

    @property
    def data(self) -> dict[str, Any]:
        """The comparisons."""
        of_run = {"ended": self.ended, "records": str(self.path)} if self.path else {}
        return {"family": self.family, **({} if self.classical is None else {"classical": self.classical}), **of_run}

    @cached_property
    def figures(self) -> Sequence[Figure]:
        """The ratios with their intervals, and the step times; none of scopes and kernels."""
        from benchmarker.page.assemble import main_figures
        from benchmarker.page.study import Study

        if self.rules.level != "trial":
            return ()
        sides = [side for match in self.matches for side in (match.baseline, match.contender)]
        records = self.records or [record for side in sides for record in side.records]
        family = self.family if self.matches else None
        return main_figures(Study([("", records)], self.matches, family, self.derive, self.rules))

    def parts(self) -> Iterator[Part]:
        """Yield the verdicts in words and as a table."""
        yield from family_output(self.family, tabular=True)
        if self.classical:
            yield from classical_output(self.classical, tests=False)
        if self.ended:
            yield Text(self.ended)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each comparison."""
        import msgspec
        import pandas as pd

        return pd.DataFrame(msgspec.to_builtins(self.family.comparisons))


def rules_of(
    metric: str | None = None,
    statistic: str | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    level: Level = "trial",
    **more: Any,
) -> Rules:
    """Return the requested rules; raises `UserError` if two options exclude each other, or a share is none."""
    if metric and statistic:
        raise UserError("--statistic applies only to the step time; leave it out with --metric")
    for name, share in (("delta", delta), ("alpha", alpha)):
        if share is not None and not 0 < share < 1:
            raise UserError(f"{name}={share}: not a share between 0 and 1")
    metric = metric or PROFILED.get(level) or f"step_time_{statistic or 'median'}_s"
    return Rules(metric=metric, delta=delta or DELTAS[level], alpha=alpha, level=level, **more)


def pairs_of(a: tuple[str, Mapping[str, Any]], b: tuple[str, Mapping[str, Any]]) -> tuple[list[Case], list[str]]:
    """Return the cases of both sides in turns, A's first, and what is not compared.

    A side is its name and its settings, which are one case, or of a program one for each of their values. Of files of a
    user, of which no function is named, those that both have are compared. Raises `UserError`, naming the side, if a
    setting is invalid or a list, and if there is no such function.
    """
    tables = []
    for side, settings in (a, b):
        with concerning(side):
            tables.append(build.expanded(description_of(settings, trials=1)))
    named = any(FUNCTION in settings or FUNCTION not in of[0] for (_, settings), of in zip((a, b), tables, strict=True))
    lists = [name for _, settings in (a, b) for name, value in settings.items() if isinstance(value, list)]
    axes = dict.fromkeys(lists if is_program(str(a[1]["problem"])) else ()) if named else {FUNCTION: None}

    def values(settings: Mapping[str, Any]) -> tuple[str | None, ...]:
        return tuple(str(settings[name]) if name in settings else None for name in axes)

    def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether they have the same value of each axis that both have."""
        pairs = zip(values(one), values(other), strict=True)
        return all(first == second or None in (first, second) for first, second in pairs)

    cases: list[list[Case]] = []
    not_compared: list[str] = []
    for (side, _), of, others in zip((a, b), tables, tables[::-1], strict=True):
        common = [table for table in of if any(agree(table, other) for other in others)]
        if not common:
            one, other, function = tables[0][0]["problem"], tables[1][0]["problem"], tables[0][0][FUNCTION]
            raise UserError(f"{one} and {other} have no function in common; name one of each, as in {one}:{function}")
        not_compared += [f"{table['problem']}:{table[FUNCTION]}" for table in of if table not in common]
        with concerning(side):
            if len({values(table) for table in of}) < len(of):
                raise UserError(f"{len(of)} cases; a side is one: give each setting one value")
            made, left_out = build.make_cases(common)
            refuse_emulated(made)
        cases.append(made)
        not_compared += left_out
    pairs = [(one, other) for one in cases[0] for other in cases[1] if agree(one.params, other.params)]
    return [case for pair in pairs for case in pair], not_compared


def judged(
    cases: list[Case],
    not_compared: list[str],
    rules: Rules,
    results: Path,
    resume: bool,
    listener: Listener,
    *,
    both_auto: bool,
    design: Design = "auto",
    target: float | None = None,
    budget_s: float | None = None,
    max_rounds: int = LOOKS[-1],
    order_seed: int | None = None,
    after_round: AfterRound | None = None,
) -> Verdicts:
    """Measure pairs of cases in rounds until each has a verdict; `both_auto` says that no device was asked for.

    After each round `after_round` gets how things stand; without it, the listener is told at each look.
    """
    derive = load_metrics()
    if both_auto:
        same_device(cases)
    refuse_unknown([rules.metric], [not_begun(cases[0])], derive)
    trouble = duet_trouble(cases)
    if rules.metric.endswith(("_J", "_W")):
        trouble = trouble or f"power readings cannot separate the two sides of a duet, so there is no {rules.metric}"
        if any(case.measuring.power == samplers.NONE for case in cases):
            raise UserError(f"--power=none reads no meter, so there is no {rules.metric}; leave --power=none out")
    if design == "duet" and trouble:
        raise UserError(f"{trouble}; leave --design=duet out")
    plan = make_plan(
        cases,
        max_rounds,
        design="rounds" if design == "rounds" or trouble else "duet",
        looks=looks(max_rounds),
        seed=order_seed,
    )
    allocation = launchers.allocation()
    with store.unfinished_run(results, plan) if resume else store.new_run(results, plan) as folder:
        pairs = len(cases) // 2
        referee = Referee(rules, derive, looks(max_rounds), target, budget_s, listener.say, pairs, after_round)
        if cases[::2] == cases[1::2]:
            listener.say("A and B are the same configuration: this A/A test shows the machine's noise floor")
        records = Records(execute(folder, listener, allocation, referee))
    made = matching.within(records)
    family = compare_matches(made.matches, rules, derive, not_compared, shared=made.shared)
    return Verdicts(family, None, made.matches, (), records, folder.path, referee.ended, rules, derive)


def compare(
    *results: str | PathLike[str],
    by: str | None = None,
    baseline: str | None = None,
    level: Level = "trial",
    pool: bool = False,
    unit: Unit = "trial",
    classically: bool = False,
    metric: str | None = None,
    statistic: str | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    where: str | Sequence[str] = (),
    unread: Callable[[Iterable[Fault]], None] = warn_of,
) -> Verdicts:
    """Compare stored records: the contender is faster, slower, the same within `delta`, or undecided.

    A result is a record, the folder of a run, a folder of runs, or an archive; `where` are conditions, NAME=VALUE
    or SQL, that select records. With several, the first is the baseline and each of the others is compared with it,
    case by case. With `by`, or with one result, configurations are compared that differ in only one axis. `level`
    compares each scope or kernel of profiled trials, `unit="block"` the timed blocks of one process as if they were
    independent; `classically` adds rank-sum tests of all blocks. A file that cannot be read is left out with a
    warning. Raises `UserError` if a result has no record, or if options exclude each other.
    """
    if baseline is not None and by is None:
        raise UserError(
            "--baseline is a value of the axis that --by names; without --by, the first RESULT is the baseline"
        )
    if unit == "block" and (metric or statistic):
        raise UserError("--unit=block compares the step times of timed blocks; leave --metric and --statistic out")
    timed = {
        "--metric": metric,
        "--statistic": statistic,
        "--unit=block": unit == "block",
        "--classical": classically,
    }
    if level != "trial" and (given := [name for name, value in timed.items() if value]):
        raise UserError(f"--level={level} compares only profiled times; leave {', '.join(given)} out")
    if pool and by is None:
        raise UserError("--pool needs --by, which names what is compared; without it, the RESULTs are compared")
    rules = rules_of(metric, statistic, delta, alpha, level, blocks_as_trials=unit == "block")
    named = paths(results)
    wanted = conditions(where)
    read = [store.read([result], wanted) for result in named]
    faults = [fault for _, of in read for fault in of]
    unread(faults)
    groups = [(name, records) for name, (records, _) in zip(short_names(named), read, strict=True)]
    if wanted:
        groups = [(name, of) for (name, _), of in zip(groups, wanted.fitting(groups), strict=True)]
    refuse_empty([name for name, records in groups if not records])
    derive = load_metrics(named) if level == "trial" else profiled_parts.part_metrics(level)
    refuse_unknown([rules.metric], [record for _, records in groups for record in records], derive)
    if by is not None:
        every = [record for _, records in groups for record in records]
        made = matching.by(every, by, baseline, side_of={} if pool else side_of(groups))
    elif len(groups) == 1:
        made = matching.within(groups[0][1])
    else:
        made = matching.between(groups)
    if level != "trial":
        made = profiled_parts.split(made, level)
    notes = [*made.notes, *suite_notes(made.matches, store.suites(named))]
    family = compare_matches(made.matches, rules, derive, made.unmatched, notes, made.shared)
    described = classically or (
        level == "trial" and any(comparison.method == "none" for comparison in family.comparisons)
    )
    tables = [table for match in made.matches if (table := classical(match))] if described else None
    return Verdicts(family, tables, made.matches, faults, rules=rules, derive=derive)
