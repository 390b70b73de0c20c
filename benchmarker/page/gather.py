"""Build the study behind a page from records: what is compared, the verdicts, the scores and the acceptance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.comparing.judge import compare
from benchmarker.comparing.matching import Match, Matching
from benchmarker.comparing.notes import suite_notes
from benchmarker.comparing.results import Family, Rules
from benchmarker.files import regular
from benchmarker.files.atomic import Fault
from benchmarker.hooks.metrics import Derive, cached, load_metrics
from benchmarker.page.study import Study, beside
from benchmarker.procurement import costs, reference, sides, weights
from benchmarker.procurement.accept import Acceptance, accept
from benchmarker.procurement.completeness import completeness_of
from benchmarker.procurement.score import THROUGHPUT, Scores, default_metrics, score
from benchmarker.records import archive, ceilings, store
from benchmarker.records.load import Load
from benchmarker.records.record import Record
from benchmarker.records.sides import Side, short_names, side_of
from benchmarker.traces.profile_files import EVENTS

Read = Sequence[tuple[Path, Sequence[Record], Sequence[Fault]]]


@dataclass(frozen=True, slots=True)
class Procurement:
    """The files of a procurement: prices, weights of cases, and bounds that must be met."""

    cost: Path | None = None
    weights: Path | None = None
    reference: Path | None = None


def gather(
    read: Read,
    rules: Rules,
    *,
    by: str | None = None,
    baseline: str | None = None,
    procurement: Procurement = Procurement(),
    loads: Sequence[Load] = (),
    unread: Sequence[Fault] = (),
    title: str | None = None,
) -> Study:
    """Judge the records of results, each of which has at least one record.

    Results are called by what distinguishes their paths; `baseline` and a cost file may have their paths too.
    Loads are shown beside them, and `unread` is among the faults.

    Raises `UserError` like `choose`, if a file of the procurement is not valid, or if it asks for a score and there is
    only one side.
    """
    results = [result for result, _, _ in read]
    _refuse_twice(results)
    called = dict(zip(map(str, results), short_names(results) if len(results) > 1 else map(str, results), strict=True))
    groups = [(called[str(result)], records) for result, records, _ in read]
    baseline = called.get(str(Path(baseline)), baseline) if baseline else None
    known = ceilings.known(results)
    planned = completeness_of(results, [record for _, records in groups for record in records])
    derive = cached(load_metrics(results))
    made, unjudged = choose(groups, by, baseline)
    notes = [*made.notes, *suite_notes(made.matches, store.suites(results))] if made else []
    scores, unscored = _scores(results, groups, called, derive, by, baseline, procurement)
    family = compare(made.matches, rules, derive, made.unmatched, notes, made.shared) if made else None
    return Study(
        results=groups,
        faults=[*(fault for _, _, found in read for fault in found), *unread, *planned.faults, *known.faults],
        planned=planned,
        matches=made.matches if made else (),
        family=_as_scored(family, scores) if family and scores else family,
        unjudged=unjudged,
        derive=derive,
        rules=rules,
        telemetry=beside(results, store.TELEMETRY),
        tables=beside(results, EVENTS),
        ceilings=known,
        scores=scores,
        unscored=unscored,
        acceptances=_acceptances(results, groups, derive, procurement.reference) if procurement.reference else (),
        loads=loads,
        title=title,
        origins={called[str(result)]: (str(result), _digest(result)) for result in results},
    )


def _refuse_twice(results: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for result in results:
        if result.resolve() in seen:
            raise UserError(f"{result} is named twice; name each result once")
        seen.add(result.resolve())


def _digest(result: Path) -> str:
    """Return the SHA-256 of the records of a result, one file after the other in order; empty without such files."""
    files = [] if archive.is_archive(result) else store.record_files(result, lambda _: None)
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):
            digest.update(regular.content(file))
    return digest.hexdigest() if files else ""


def _as_scored(family: Family, scores: Scores) -> Family:
    """Return the comparisons with the verdicts of the scores where a score is of a single case: they are one fact."""
    found = family.comparisons
    scored = [each for score in scores.scores for each in score.metrics if each.metric == found[0].metric]
    if len(scored) != len(found) or any(len(each.by_case) != 1 or each.mean is None for each in scored):
        return family
    means = [each.mean for each in scored if each.mean]
    names = ("verdict", "p_adjusted", "provisional", "enough")
    return structs.replace(
        family,
        comparisons=[
            structs.replace(each, **{name: getattr(mean, name) for name in names})
            for each, mean in zip(found, means, strict=True)
        ],
    )


def _scores(
    results: Sequence[Path],
    groups: Sequence[tuple[str, Sequence[Record]]],
    called: Mapping[str, str],
    derive: Derive,
    by: str | None,
    baseline: str | None,
    given: Procurement,
) -> tuple[Scores | None, str]:
    """Return the scores of `suite score`, or None and the reason; there are none of one result without an axis.

    `called` has the names of the results by their paths.
    """
    if len(results) == 1 and by is None:
        if given.cost or given.weights:
            raise UserError("--cost and --weights need two results, or an axis with --by")
        return None, ""
    if by is not None and not (given.cost or given.weights or len(results) > 1):
        return None, ""
    cost = costs.read(given.cost, called) if given.cost else None
    try:
        if by is not None:
            records = [record for _, several in groups for record in several]
            found = sides.of_axis(
                records,
                completeness_of(results, records).missing,
                by,
                baseline,
                None,
                side_of(groups),
            )
        else:
            of_result = {
                name: completeness_of([result], records).missing
                for result, (name, records) in zip(results, groups, strict=True)
            }
            found = sides.of_results([(name, own, of_result[name]) for name, own in first(groups, baseline)])
    except UserError as error:
        return None, str(error)
    return (
        score(
            found,
            [*default_metrics(derive(groups[0][1][0])), *([costs.COST_METRIC] if given.cost else [])],
            derive,
            weights=weights.read(given.weights) if given.weights else weights.Weights(),
            costs=cost,
            required=[THROUGHPUT],
            rules=Rules(),
            known_suites=store.suites(results),
        ),
        "",
    )


def _acceptances(
    results: Sequence[Path], groups: Sequence[tuple[str, Sequence[Record]]], derive: Derive, path: Path
) -> list[tuple[str, Acceptance]]:
    """Judge each result like `suite accept`."""
    wanted = reference.read(path)
    try:
        return [
            (name, accept(wanted, records, completeness_of([result], records).missing, derive))
            for result, (name, records) in zip(results, groups, strict=True)
        ]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def choose(
    results: Sequence[tuple[str, Sequence[Record]]], by: str | None, baseline: str | None
) -> tuple[Matching | None, str]:
    """Return what is compared, or None and the reason if it is ambiguous what to compare within one result.

    Of several results, the baseline is the first, or the one that `baseline` names; the sides have the names of their
    results. With `by`, `baseline` is a value of that axis. Without `by`, results of different work are not compared.
    Raises `UserError` if the requested comparison is not possible.
    """
    if by is not None:
        every = [record for _, records in results for record in records]
        return matching.by(every, by, baseline, side_of=side_of(results)), ""
    if len(results) > 1:
        made = matching.between(first(results, baseline), lenient=True)
        if not made.matches:
            return None, "; ".join(made.notes).removeprefix("not compared: ")
        names = {record.trial_id: name for name, records in results for record in records}
        return replace(made, matches=tuple(_called(match, names) for match in made.matches)), ""
    if baseline is not None:
        raise UserError("--baseline names a value of the axis of --by, or one of several results; give one of these")
    records = results[0][1]
    try:
        return matching.within(records), ""
    except UserError as error:
        reason = str(error)
    try:
        return matching.by(records, "framework", None), ""
    except UserError:
        return None, reason


def first(results: Sequence[tuple[str, Sequence[Record]]], baseline: str | None) -> list[tuple[str, Sequence[Record]]]:
    """Return the results with the baseline first."""
    if baseline is None:
        return list(results)
    chosen = [result for result in results if result[0] == baseline]
    if not chosen:
        names = ", ".join(name for name, _ in results)
        raise UserError(f"--baseline={baseline}: no such result was given; there are: {names}")
    return [*chosen, *(result for result in results if result[0] != chosen[0][0])]


def _called(match: Match, names: Mapping[str, str]) -> Match:
    """Return the match with its sides named after their results."""

    def called(side: Side) -> Side:
        return replace(side, name=names[side.records[0].trial_id])

    return replace(match, baseline=called(match.baseline), contender=called(match.contender))
