"""RESULTs of commands that take records or traces."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.display.result import Part, Text
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean
from benchmarker.hooks.cases import Cases
from benchmarker.library.results import conditions

pool_option = click.option(
    "--pool", is_flag=True, help="Take the trials of all RESULTs together. [default: one side per folder]"
)
"""The option to pool results that are sides otherwise."""
where_option = click.option(
    "--where",
    metavar="NAME=VALUE[,VALUE...]",
    multiple=True,
    help="Only trials in which a factor has one of these values, or SQL: \"precision = 'bf16' AND node LIKE 'n%'\"; "
    "repeat the option to narrow further.",
)


results_argument = click.argument(
    "results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
result_argument = click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))


def tell_unread(faults: Iterable[Fault | str]) -> None:
    """Name the files that cannot be read."""
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)


def read_cases(results: Sequence[Path], pool: bool, where: Sequence[str] = ()) -> Cases:
    """Read results as cases, and name the files that cannot be read; raises `UserError` if no record is read."""
    from benchmarker.hooks import cases

    read = cases.read(results, pool=pool, where=conditions(where))
    tell_unread(read.faults)
    if not read:
        raise UserError("no record was read; name records, runs, or folders of runs")
    return read


def mixed_output(cases: Cases) -> Iterator[Part]:
    """Yield a note on each side that has trials of several machines in a case."""
    for mixed in cases.mixed_machines():
        yield Text(f"note: {mixed}", "  ")
