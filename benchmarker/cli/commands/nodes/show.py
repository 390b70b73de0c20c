"""`benchmarker nodes show`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.nodes import fleet_output, junit_of
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.comparing.results import DELTAS
from benchmarker.files import atomic
from benchmarker.fleet import values
from benchmarker.fleet.judge import judge
from benchmarker.formatting import clean, si
from benchmarker.hooks.registry import needing


@click.command("show")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@delta_option
@alpha_option
@click.option("--all", "every", is_flag=True, help="Show every case of every node, not only the slowest.")
@click.option("--junit", "xml", type=click.Path(path_type=Path), metavar="FILE", help="Also write JUnit XML.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Also write a page with a heat map: .html."
)
@output_options()
def command(
    results: tuple[Path, ...],
    delta: float | None,
    alpha: float,
    every: bool,
    xml: Path | None,
    output: Path | None,
) -> Output:
    """Show the outliers among the nodes, devices and links of a fleet, the slowest first, with the evidence.

    RESULT is the folder of a fleet that `nodes run` measured. Several RESULTs may be runs on several machines, which
    are identified by host name. The first rounds select suspects; only later rounds, together with control nodes,
    decide. The probability that any node within --delta of the others is called an outlier is at most --alpha.

    The exit status is 1 if a node or link is an outlier, if a node, link or trial failed, or if a file cannot be read;
    otherwise 0.
    """
    if output and output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output={output}: the name of a page must end in .html")
    if output:
        with needing("report", "a page"):
            from benchmarker.report.render import render
    with working("reading the nodes"):
        measured = values.read(results)
        found = judge(measured, alpha, delta or DELTAS["trial"])
    if xml:
        _save(xml, junit_of(str(results[0]), found))
    if output:
        from benchmarker.report.fleet import page

        content = render(page(found))
        _save(output, content)
        click.echo(f"page: {clean(str(output))} ({si(len(content), 'B')})", err=True)
    return Output(fleet_output(found, every=every), found, 0 if found.is_ok and not measured.faults else 1)


def _save(path: Path, content: bytes) -> None:
    try:
        atomic.write(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
