"""`benchmarker suite score`."""

from pathlib import Path
from typing import Any

import click

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options, verbose_option
from benchmarker.cli.options.judging import status_of, strict_option
from benchmarker.cli.options.results import pool_option, results_argument, tell_unread
from benchmarker.cli.options.types import File
from benchmarker.display.scores import scores_output
from benchmarker.formatting import clean, names_in
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.scoring import score
from benchmarker.procurement.costs import COST_METRIC, COST_METRICS
from benchmarker.procurement.score import default_metrics
from benchmarker.records import store
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
    results: tuple[Path, ...], named: str | None, strict: bool, wide: bool, verbose: bool, **options: Any
) -> Output:
    """Score contenders against a baseline over all cases: for each metric, the weighted geometric mean of the ratios.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. The sides are the RESULTs, or the values
    of the axis --by, which are scored over the cases of each RESULT. Ratios are inverted where lower is better, so
    above 1 always means that the contender is better. More than two sides are ranked; those without a significant
    difference share a rank.

    The exit status is 0 if the score covers everything requested. It is 1 if a trial failed or was not run, a case has
    no counterpart or no samples_per_s (with --metric: no value of a named metric), or a file cannot be read. With
    --strict it is 3 if a verdict is provisional.
    """
    names = None if named is None else names_in(named)
    if names == []:
        raise UserError("--metric names no metric")
    made = score(*results, metrics=names or (), unread=tell_unread, **options)
    for result in made.unscored:
        click.echo(f"not scored: {clean(str(result))}", err=True)
    means = [mean for ranking in made.scores.rankings for mean in ranking.pairs]
    status = 1 if made.scores.missing else status_of(means, (), strict)
    return Output(scores_output(made.scores, made.left_out, wide=wide, verbose=verbose), made.data, status)
