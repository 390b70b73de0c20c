"""`benchmarker suite list`."""

from __future__ import annotations

from typing import Any

import click

from benchmarker.cli.display.output import json_option, print_json, print_table
from benchmarker.planning import factors, suites


@click.command("list")
@json_option
def command(as_json: bool) -> None:
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
    if as_json:
        print_json(rows)
    else:
        cells = [[str(value) for value in row.values()] for row in rows]
        print_table(list(rows[0]), cells, drop=["version", "trials"], remedy="--json has")
