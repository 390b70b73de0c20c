"""`benchmarker query`."""

from pathlib import Path

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.sql import answer_output
from benchmarker.cli.options.results import results_argument, tell_unread


@click.command("query")
@results_argument
@click.argument("statement", metavar="SQL")
@output_options()
def command(results: tuple[Path, ...], statement: str) -> Output:
    """Query an archive or records in SQL: DuckDB over the tables trials, blocks, scopes, kernels and records.

    RESULT is an archive, a record, the folder of a run, or a folder of runs:

      SELECT node, median(step_time_median_s) AS s FROM trials WHERE problem = 'gemm' GROUP BY node ORDER BY s

    `DESCRIBE trials` lists the columns; docs/archive.md says what they mean. `(factors ->> 'torch')` is any factor of a
    case or its environment, as text; `(record ->> '$.machine.cpu.governor')` in `records` any field of a record.

    The exit status is 1 if a file cannot be read.
    """
    with working("reading"):
        from benchmarker.hooks.where import query  # Arrow takes longer to import than everything else

        (headings, rows), faults = query(results, statement)
    tell_unread(faults)
    return answer_output(headings, rows, status=1 if faults else 0)
