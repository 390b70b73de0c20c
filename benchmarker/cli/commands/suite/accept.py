"""`benchmarker suite accept`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarker.api.errors import UserError, concerning
from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.options.results import pool_option, results_argument, tell_unread
from benchmarker.cli.options.types import File, Share
from benchmarker.display.result import Part, Text
from benchmarker.files import atomic
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean, count, si
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement import completeness, junit, reference
from benchmarker.procurement.accept import Acceptance, CaseOutcome, accept, together
from benchmarker.procurement.reference import Tolerance
from benchmarker.records import sides, store
from benchmarker.records.record import Record
from benchmarker.tables import terminal


class _ToleranceType(Share):
    """A share such as `3%`, or `+3%` to add it to the scatter."""

    name = "tolerance"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the tolerance."""
        if not isinstance(value, str):
            return value
        return Tolerance(super().convert(value.removeprefix("+"), param, ctx), adds=value.startswith("+"))


@click.command("accept")
@results_argument
@click.option("--reference", "asked", type=File(), help="TOML file with the bounds.")
@click.option("--junit", "xml", type=File(), help="Also write JUnit XML.")
@click.option("--write", type=File(), help="Create a reference from the records.")
@click.option(
    "--tolerance",
    type=_ToleranceType(),
    metavar="[+]SHARE",
    help="With --write: how much worse a value may be, or with + in addition to the scatter. [default: the scatter]",
)
@click.option(
    "--metric", metavar="NAME", help=f"With --write: any metric that `show` prints. [default: {reference.METRIC}]"
)
@click.option("--anyway", is_flag=True, help="With --write: even if most trials of a case were disturbed.")
@pool_option
@store.uncollected()
@output_options(tables=False)
def command(
    results: tuple[Path, ...],
    asked: Path | None,
    xml: Path | None,
    write: Path | None,
    tolerance: Tolerance | None,
    metric: str | None,
    anyway: bool,
    pool: bool,
    view: View,
) -> Output:
    """Check records against the bounds of a reference: PASS or FAIL for each case, with the reasons.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. Of several folders, each is judged by
    itself, unless --pool is given. A case passes if its median over trials is within its bounds, no trial failed or is
    missing, and there are as many trials as required. Borderline cases, which another run could decide otherwise, are
    flagged. With --write, a reference is created from the records instead: it stores a prediction bound for the median
    of as many new trials on the same machine.

    The exit status is 0 if every case passed, no trial failed or was not run, and every file could be read; otherwise
    1.
    """
    if (asked is None) == (write is None):
        raise UserError("give --reference=FILE to check the records against, or --write=FILE to create one")
    if write and (xml or not view.is_text):
        raise UserError("--junit and --json need --reference")
    if asked and (tolerance or metric or anyway):
        raise UserError("--tolerance, --metric and --anyway need --write")
    wanted = reference.read(asked) if asked else []
    named = sides.named(results, pool=pool)
    if write and len(named) > 1:
        raise UserError(
            f"a reference is that of one side, and there are {len(named)}: name one of "
            f"{', '.join(name for name, _ in named)}, or take them together with --pool"
        )
    read = [(name, *store.read(paths)) for name, paths in named]
    planned = [
        completeness.completeness_of(paths, records) for (_, paths), (_, records, _) in zip(named, read, strict=True)
    ]
    faults = [fault for (_, _, unread), of in zip(read, planned, strict=True) for fault in (*unread, *of.faults)]
    left_out = [reason for of in planned for reason in of.left_out]
    tell_unread(faults)
    if write:
        for absent in planned[0].missing:
            click.echo(f"benchmarker: {count(absent.trials, 'trial')} of run {clean(absent.run_id)} not run", err=True)
        lacking = _write(write, read[0][1], metric or reference.METRIC, tolerance, results, anyway=anyway)
        return Output(status=1 if lacking or faults or planned[0].missing else 0)
    derive = load_metrics(results)
    with concerning(asked):
        acceptance = together(
            (name, accept(wanted, records, of.missing, derive))
            for (name, records, _), of in zip(read, planned, strict=True)
        )
    if xml:
        _write_junit(xml, str(asked), acceptance, faults)
    passed = not faults and all(outcome.verdict == "PASS" for outcome in acceptance.outcomes)
    data = {
        "verdict": "PASS" if passed else "FAIL",
        **msgspec.to_builtins(acceptance),
        "left_out": left_out,
        "unreadable": [str(fault) for fault in faults],
    }
    return Output(_output(acceptance, faults, left_out), data, 0 if passed else 1)


def _output(acceptance: Acceptance, faults: Sequence[Fault], left_out: Sequence[str]) -> Iterator[Part]:
    for outcome in acceptance.outcomes:
        yield Text(
            f"{outcome.verdict} {outcome.name}{_figures(outcome)}",
            "     ",
            "green" if outcome.verdict == "PASS" else "red",
        )
        for reason in outcome.reasons:
            yield Text(f"     {reason}", "     ")
        for doubt in outcome.doubts:
            yield Text(f"     but {doubt}", "     ")
        if outcome.command and (outcome.verdict == "FAIL" or terminal.width() is None):
            yield Text(f"     repeat with: {outcome.command}", "     ")
    for name in acceptance.unasked:
        yield Text(f"not judged, no case of the reference matches: {name}", "  ")
    for reason in left_out:
        yield Text(f"left out of the runs: {reason}", "  ")
    passed = sum(outcome.verdict == "PASS" for outcome in acceptance.outcomes)
    unread = f"; {count(len(faults), 'file')} cannot be read" if faults else ""
    word = "PASSED" if passed == len(acceptance.outcomes) and not faults else "FAILED"
    near = sum(outcome.near for outcome in acceptance.outcomes)
    unsure = f"; {near} borderline (another run may be judged otherwise)" if near else ""
    yield f"{word}: {passed} of {len(acceptance.outcomes)} passed{unsure}{unread}"


def _figures(outcome: CaseOutcome) -> str:
    """Return a value with its range over trials and its bounds, as text."""
    if outcome.metric is None:
        return ""
    value = "-"
    if outcome.value is not None:
        low, high = (si(end, outcome.unit) for end in (outcome.lowest, outcome.highest))
        value = (
            f"{si(outcome.value, outcome.unit)} ({low} to {high}, {outcome.trials} trial{'s' * (outcome.trials != 1)})"
        )
    bounds = [
        f"{word} {si(end, outcome.unit)}".rstrip()
        for word, end in (("min", outcome.min), ("max", outcome.max))
        if end is not None
    ]
    return f": {outcome.metric} {value}, {', '.join(bounds)}"


def _write_junit(path: Path, name: str, acceptance: Acceptance, faults: Sequence[Fault]) -> None:
    tests = [
        junit.Item(
            outcome.name + (f" {outcome.metric}" if outcome.metric else ""),
            outcome.duration_s,
            "passed" if outcome.verdict == "PASS" else "failure",
            "; ".join(outcome.reasons),
            "\n".join(
                [
                    f"{outcome.name}{_figures(outcome)}",
                    *(f"but {doubt}" for doubt in outcome.doubts),
                    *([f"repeat with: {outcome.command}"] if outcome.command else []),
                ]
            ),
        )
        for outcome in acceptance.outcomes
    ]
    tests += [junit.Item(name, 0.0, "skipped", "no case of the reference matches") for name in acceptance.unasked]
    tests += [junit.Item(str(fault.path), 0.0, "error", f"cannot be read: {fault.reason}") for fault in faults]
    atomic.save(path, junit.document(name, tests))


def _write(
    path: Path,
    records: Sequence[Record],
    metric: str,
    tolerance: Tolerance | None,
    results: Sequence[Path],
    *,
    anyway: bool,
) -> list[str]:
    """Write a reference; returns what is left out of it, with the reasons."""
    if path.exists():
        raise UserError(f"{path} exists already; name another file, or move it away")
    if not records:
        raise UserError("no record was read, so no reference can be created; name records, runs, or folders of runs")
    cases = Cases.of(records)
    if not anyway and (reason := reference.refusal(cases)):
        raise UserError(f"no reference is written: {reason}, or use --anyway")
    for mixed in cases.mixed_machines():
        click.echo(f"benchmarker: {clean(mixed)}", err=True)
    made, left_out, wide = reference.draft(cases, metric, tolerance, load_metrics(results))
    for reason in left_out:
        click.echo(f"left out: {clean(reason)}", err=True)
    for note in wide:
        click.echo(f"benchmarker: {clean(note)}", err=True)
    if not made:
        raise UserError("no configuration is left for the reference; the lines above say why")
    atomic.save(path, reference.text(made).encode())
    doubt = f"; {count(len(wide), 'bound')} more than {reference.WIDE:.0%} from the median" if wide else ""
    click.echo(clean(f"reference of {count(len(made), 'case')}: {path}{doubt}"))
    return left_out
