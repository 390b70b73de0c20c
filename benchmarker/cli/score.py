"""`benchmarker score`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from benchmarker import completeness, store
from benchmarker.cli.output import clean, json_option, print_json
from benchmarker.cli.scores import print_score
from benchmarker.comparison import Rules
from benchmarker.errors import UserError
from benchmarker.metrics import deriver
from benchmarker.scoring import economy, sides
from benchmarker.scoring import weights as weighing
from benchmarker.scoring.score import score

METRICS = ("samples_per_s", "samples_per_J")


@click.command("score", short_help="Sum up two sides over all cases.")
@click.argument("places", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--by", metavar="AXIS", help="The sides are values of this: framework, precision, host, ...")
@click.option("--baseline", metavar="SIDE", help="One of the places, or a value of the axis; else the first.")
@click.option("--contender", metavar="SIDE", help="Another one; else the second.")
@click.option("--weights", type=click.Path(path_type=Path), metavar="FILE", help="TOML: what cases weigh; else 1.")
@click.option("--cost", type=click.Path(path_type=Path), metavar="FILE", help=f"TOML: prices, for {economy.NAME}.")
@click.option(
    "--metric",
    "named",
    metavar="NAME[,NAME...]",
    help=f"Any of `show`; else {', '.join(METRICS)}, and with --cost {economy.NAME}.",
)
@json_option
def command(
    places: tuple[Path, ...],
    by: str | None,
    baseline: str | None,
    contender: str | None,
    weights: Path | None,
    cost: Path | None,
    named: str | None,
    as_json: bool,
) -> int:
    """Sum up a baseline and a contender over all cases: the weighted geometric mean of their ratios, by metric.

    RESULT is a record, the folder of a run, or a folder of runs. The sides are two of the places, or with --by two
    values of an axis. Every ratio is turned so that above 1 means that the contender is better.

    The exit status is 0 where the score is of all that was asked for; 1 where a trial failed or was not run, a case
    has no counterpart, or no samples_per_s (with --metric: no value of one named there), or a file cannot be read.
    """
    metrics = _metrics(named, cost)
    costs = economy.read(cost) if cost else None
    weigh = weighing.read(weights) if weights else weighing.Weights()
    places = places if by else _two(places, baseline, contender)
    read = [(str(place), *store.read([place])) for place in places]
    every = [record for _, records, _ in read for record in records]
    plans = completeness.asked(places, every)
    faults = [*(fault for _, _, unread in read for fault in unread), *plans.faults]
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)
    if empty := [name for name, records, _ in read if not records]:
        raise UserError(f"no record was read from {', '.join(empty)}; name records, runs, or folders of runs")
    if by:
        both = sides.of_axis(every, plans.unrun, by, baseline, contender)
    else:
        unrun = [
            completeness.asked([place], records).unrun for place, (_, records, _) in zip(places, read, strict=True)
        ]
        both = sides.of_places([(*each[:2], own) for each, own in zip(read, unrun, strict=True)])
    found = score(
        both,
        metrics,
        deriver(places),
        weights=weigh,
        costs=costs,
        required=metrics if named else metrics[:1],
        rules=Rules(),
    )
    lacks = found.lacks | ({"file(s) that cannot be read": len(faults)} if faults else {})
    found = msgspec.structs.replace(found, lacks=lacks)
    if as_json:
        print_json({**msgspec.to_builtins(found), "left_out": plans.left_out})
    else:
        print_score(found, plans.left_out)
    return 1 if lacks else 0


def _two(places: tuple[Path, ...], baseline: str | None, contender: str | None) -> tuple[Path, Path]:
    """The two places that are scored, the baseline first."""
    for option, name in (("--baseline", baseline), ("--contender", contender)):
        if name is not None and Path(name) not in places:
            raise UserError(f"{option}={name} is none of the places: {', '.join(map(str, places))}")
    named = {Path(name) for name in (baseline, contender) if name is not None}
    others = iter([place for place in places if place not in named])
    one, two = (next(others, None) if name is None else Path(name) for name in (baseline, contender))
    if one is None or two is None or one == two:
        raise UserError("a score takes two places; name another one, or an axis with --by")
    for place in places:
        if place not in (one, two):
            click.echo(f"not scored: {clean(str(place))}", err=True)
    return one, two


def _metrics(named: str | None, cost: Path | None) -> list[str]:
    """The metrics that are asked for."""
    if named is None:
        return [*METRICS, *([economy.NAME] if cost else [])]
    names = [name.strip() for name in named.split(",") if name.strip()]
    if not names:
        raise UserError("--metric names no metric")
    if (economy.NAME in names) != (cost is not None):
        raise UserError(f"--metric={economy.NAME} and --cost=FILE go together; give both, or neither")
    return list(dict.fromkeys(names))
