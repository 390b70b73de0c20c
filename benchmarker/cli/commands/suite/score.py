"""`benchmarker suite score`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options, verbose_option
from benchmarker.cli.options.judging import status_of, strict_option
from benchmarker.cli.options.results import pool_option, refuse_empty, results_argument, tell_unread
from benchmarker.cli.options.types import File, names_in
from benchmarker.comparing.results import Rules
from benchmarker.display.scores import scores_output
from benchmarker.formatting import clean
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement import completeness, sides
from benchmarker.procurement import weights as weighing
from benchmarker.procurement.costs import COST_METRIC, COST_METRICS
from benchmarker.procurement.costs import read as read_costs
from benchmarker.procurement.score import THROUGHPUT, default_metrics, score
from benchmarker.records import store
from benchmarker.records.sides import side_of
from benchmarker.running.trial import not_begun


class _MetricOption(click.Option):
    """The option `--metric`, whose help names the metrics that are scored by default; only help loads the plugins."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help."""
        any_case = Case(problem="gemm", framework="numpy", device="cpu", params={})
        scored = ", ".join(default_metrics(load_metrics()(not_begun(any_case))))
        self.help = f"Metrics to score, any that `show` prints. [default: {scored}; with --cost also {COST_METRIC}]"
        return super().get_help_record(ctx)


@click.command("score")
@results_argument
@click.option("--by", metavar="AXIS[,AXIS...]", help="Score the values of this axis: framework, precision, host, ...")
@click.option("--baseline", metavar="SIDE", help="One of the RESULTs, or a value of --by. [default: the first]")
@click.option("--contender", metavar="SIDE", help="Score only this RESULT or value of --by. [default: all others]")
@click.option(
    "--weights",
    type=File(),
    help="TOML file with case weights, or a suite with weights, such as procurement. [default: all 1]",
)
@click.option("--cost", type=File(), help=f"TOML file with prices, for {', '.join(COST_METRICS)}.")
@click.option("--metric", "named", cls=_MetricOption, metavar="NAME[,NAME...]")
@pool_option
@strict_option
@verbose_option
@store.uncollected()
@output_options(top=ALL)
def command(
    results: tuple[Path, ...],
    by: str | None,
    baseline: str | None,
    contender: str | None,
    weights: Path | None,
    cost: Path | None,
    named: str | None,
    pool: bool,
    strict: bool,
    wide: bool,
    verbose: bool,
) -> Output:
    """Score contenders against a baseline over all cases: for each metric, the weighted geometric mean of the ratios.

    RESULT is a record, the folder of a run, or a folder of runs. The sides are the RESULTs, or the values of the axis
    --by, which are scored over the cases of each RESULT. Ratios are inverted where lower is better, so above 1 always
    means that the contender is better. More than two sides are ranked; those without a significant difference share a
    rank.

    The exit status is 0 if the score covers everything requested. It is 1 if a trial failed or was not run, a case has
    no counterpart or no samples_per_s (with --metric: no value of a named metric), or a file cannot be read. With
    --strict it is 3 if a verdict is provisional.
    """
    if pool and by is None:
        raise UserError("--pool needs --by, which names the sides; without it, the RESULTs are the sides")
    given = _metrics(named, cost)
    costs = read_costs(cost) if cost else None
    weigh = weighing.read(weights) if weights else weighing.Weights()
    results = results if by else _chosen(results, baseline, contender)
    read = [(str(result), *store.read([result])) for result in results]
    every = [record for _, records, _ in read for record in records]
    plans = completeness.completeness_of(results, every)
    faults = [*(fault for _, _, unread in read for fault in unread), *plans.faults]
    tell_unread(faults)
    refuse_empty([name for name, records, _ in read if not records])
    if by:
        apart = {} if pool else side_of([(name, records) for name, records, _ in read])
        made = sides.of_axis(every, plans.missing, by, baseline, contender, apart)
    else:
        unrun = [
            completeness.completeness_of([result], records).missing
            for result, (_, records, _) in zip(results, read, strict=True)
        ]
        made = sides.of_results([(*result[:2], own) for result, own in zip(read, unrun, strict=True)])
    derive = load_metrics(results)
    scores = score(
        made,
        given or [*default_metrics(derive(every[0])), *([COST_METRIC] if cost else [])],
        derive,
        weights=weigh,
        costs=costs,
        required=given or [THROUGHPUT],
        rules=Rules(),
        known_suites=store.suites(results),
    )
    missing = scores.missing | ({"file(s) that cannot be read": len(faults)} if faults else {})
    scores = msgspec.structs.replace(scores, missing=missing)
    status = 1 if missing else status_of([mean for ranking in scores.rankings for mean in ranking.pairs], (), strict)
    data = {**msgspec.to_builtins(scores), "left_out": plans.left_out}
    return Output(scores_output(scores, plans.left_out, wide=wide, verbose=verbose), data, status)


def _chosen(results: tuple[Path, ...], baseline: str | None, contender: str | None) -> tuple[Path, ...]:
    """Return the results to score, the baseline first; raises `UserError` if there are fewer than two."""
    for option, name in (("--baseline", baseline), ("--contender", contender)):
        if name is not None and Path(name) not in results:
            raise UserError(f"{option}={name} is not one of the results: {', '.join(map(str, results))}")
    different = tuple(dict.fromkeys(results))
    others = [result for result in different if contender is None or result == Path(contender)]
    free = [result for result in different if contender is None or result != Path(contender)]
    first = Path(baseline) if baseline else next(iter(free), different[0])
    chosen = tuple(dict.fromkeys((first, *others)))
    if len(chosen) < 2:
        raise UserError("a score needs two different results; name another one, or an axis with --by")
    for result in different:
        if result not in chosen:
            click.echo(f"not scored: {clean(str(result))}", err=True)
    return chosen


def _metrics(named: str | None, cost: Path | None) -> list[str]:
    """Return the named metrics, or none; raises `UserError` if they do not fit the options."""
    if named is None:
        return []
    names = names_in(named)
    if not names:
        raise UserError("--metric names no metric")
    of_cost = [name for name in names if name in COST_METRICS]
    if bool(of_cost) != (cost is not None):
        either = ",".join(of_cost) or COST_METRIC
        raise UserError(f"--metric={either} and --cost=FILE go together; give both, or neither")
    return names
