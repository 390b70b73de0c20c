"""`benchmarker suite list`."""

from __future__ import annotations

from typing import Any

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.planning import factors, suites
from benchmarker.tables.table import Table


@click.command("list")
@output_options()
def command() -> Output:
    """List the suites with version, number of cases and trials per case, and run time.

    No framework is started. Cases that a framework does not support here are left out when the suite runs.
    """
    rows: list[dict[str, Any]] = [
        {
            "name": suite.name,
            "version": suite.plan.version,
            "cases": len(factors.expand(suite.plan)),
            "trials": suite.plan.trials,
            "time": suite.time,
            "summary": suite.summary,
        }
        for suite in map(suites.find, suites.names())
    ]
    cells = [[str(value) for value in row.values()] for row in rows]
    return Output([Table.of(rows[0], cells, drop=["version", "trials"])], rows)
