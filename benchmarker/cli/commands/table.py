"""`benchmarker table`."""

from dataclasses import replace
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.cli.options.results import pool_option, read_cases, results_argument, where_option
from benchmarker.formatting import names_in
from benchmarker.hooks.metrics import cached, load_metrics, refuse_unknown
from benchmarker.library.judging import rules_of
from benchmarker.records import store
from benchmarker.records.step_times import STEP_TIME
from benchmarker.tables import layout
from benchmarker.tables.figures import PARAMETERS, baseline_of, figures, judged
from benchmarker.tables.grid import grid


@click.command("table")
@results_argument
@click.option(
    "--rows",
    metavar="FACTOR[,...]",
    help="Factors whose values name the rows: size, seq_len, host, ... [default: the fewest that separate the cases]",
)
@click.option(
    "--columns",
    metavar="FACTOR[,...]",
    help="Factors whose values name the columns. [default: framework and side, where there are several]",
)
@click.option(
    "--value",
    "names",
    metavar="NAME[,NAME...]",
    default=STEP_TIME,
    help="Metrics that `show` prints, or parameters: the number of trained parameters.",
)
@where_option
@pool_option
@click.option(
    "--difference",
    metavar="VALUE",
    help="Add columns with the difference from this value of --columns: fp32, or precision=fp32.",
)
@delta_option
@alpha_option
@click.option("--no-intervals", is_flag=True, help="Print values without their intervals.")
@store.uncollected()
@output_options(written=True)
def command(
    results: tuple[Path, ...],
    rows: str | None,
    columns: str | None,
    names: str,
    where: tuple[str, ...],
    pool: bool,
    difference: str | None,
    delta: float | None,
    alpha: float,
    no_intervals: bool,
    title: str | None,
) -> Output:
    """Print the cases of records as a table, for a terminal, a paper or a spreadsheet.

    A cell is one case: the median over its trials, with the 95% interval of the median as ±, or why there is no value.
    Two cases may not share a cell: each factor in which cases differ must be in --rows, --columns or --where.

    The best cell of a row is bold (* as text) if `compare` would call it better than each other cell of the row that
    does the same work. --difference compares with a column: Δ in the unit of the value, and in percent with an
    interval; = is the same within δ, ? is undecided.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. Of several folders, each is a side; `side`
    is a factor like the others, and in the columns unless --rows or --columns names it.

    The exit status is 1 if a file cannot be read.
    """
    chosen = names_in(names)
    if not chosen:
        raise UserError("--value names no value")
    cases = read_cases(results, pool, where)
    derive = cached(load_metrics(results))
    refuse_unknown(chosen, cases.records, derive, also=(PARAMETERS,), option="--value")
    made = grid(cases, rows, columns)
    baseline = None if difference is None else baseline_of(made, difference)
    rules = rules_of(None, None, delta, alpha)
    values = [
        judged(made, figures(made, name, derive), baseline, replace(rules, metric=name), derive) for name in chosen
    ]
    table = layout.laid_out(made, values, rules, title, intervals=not no_intervals)
    return Output([table], layout.plain(made, values, table), 1 if cases.faults else 0)
