"""`benchmarker suite list`."""

from __future__ import annotations

from typing import Any

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.planning import factors, suites
from benchmarker.proving.proof import load_proof, proofs
from benchmarker.tables.table import Table


@click.command("list")
@output_options()
def command() -> Output:
    """List the suites with version, number of cases and trials per case (of a proof: of tests), and run time.

    No framework is started. Cases that a framework does not support here are left out when the suite runs.
    """
    found: list[dict[str, Any]] = [
        {
            "name": suite.name,
            "version": suite.plan.version,
            "cases": len(factors.expand(suite.plan)),
            "trials": suite.plan.trials,
            "tests": None,
            "time": suite.time,
            "summary": suite.summary,
        }
        for suite in map(suites.find, suites.names())
    ]
    for name in proofs():
        proof = load_proof(name)
        found.append(
            {
                "name": name,
                "version": None,
                "cases": None,
                "trials": None,
                "tests": len(proof.claims),
                "time": proof.time,
                "summary": proof.summary,
            }
        )
    cells = [["-" if value is None else str(value) for value in each.values()] for each in found]
    table = Table.of(found[0], cells, drop=["version", "tests", "trials"])
    return Output([table], found)
