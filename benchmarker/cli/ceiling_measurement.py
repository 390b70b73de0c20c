"""Measuring ceilings from a command: `ceilings` itself, and `--measure` of those that need them."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.progress import Progress, working
from benchmarker.formatting import count, duration_text
from benchmarker.hooks import registry
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import on_one_platform
from benchmarker.planning.ceiling_search import quick_ceilings_of, resources, search, surveys
from benchmarker.records import ceilings
from benchmarker.records.ceilings import Ceiling, Ceilings, computed_in
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record
from benchmarker.running.ceilings import expected_s, survey, survey_s

QUICK_NOTE = (
    "these are quick ceilings: each size measured once, and not preheated; on one CPU, those of products of 8 rows and "
    "more were 0.94 to 1.08 of the thorough ones, those of one row and of memory 0.6 to 2.0"
)
"""What a quick ceiling is, and how far it may be from a thorough one: two comparisons in benchmarks/README.md."""

measure_option = click.option(
    "--measure",
    is_flag=True,
    help=f"First measure the ceilings of this machine that are not known, as `ceilings` does: {ceilings.ABOUT}.",
)


def plan_of(names: Sequence[str] | None, precisions: Sequence[str], where: Mapping[str, Any]) -> Plan:
    """Return the search for ceilings in precisions on a device, in frameworks or in all that have the device.

    Raises `UserError`.
    """
    given = {name: value for name, value in where.items() if value is not None}
    with working("querying the frameworks' capabilities"):
        if names is None:
            environment = gpus.environment(given.get("gpu"), os.environ)
            asked = given.get("device", "auto")
            given["device"], names = on_one_platform("gemm", registry.available("gemm"), asked, environment)
        return search(resources(names, precisions, given))


def measure_quickly(
    names: Sequence[str] | None, precisions: Sequence[str], where: Mapping[str, Any]
) -> tuple[Plan, list[Record], list[Ceiling]]:
    """Measure ceilings quickly, and store them; returns the search that they are a part of."""
    begun_s = time.monotonic()
    plan = plan_of(names, precisions, where)
    with Progress() as progress:
        for reason in plan.left_out:
            progress.say(f"left out: {reason}")
        planned = surveys(plan)
        most_s = survey_s(plan) - (time.monotonic() - begun_s)
        sizes = sum(len(one.cases) for one in planned)
        progress.say(
            f"trying {count(sizes, 'size')} in {count(len(planned), 'process', 'processes')}: "
            f"about {duration_text(expected_s(planned, most_s))}"
        )
        records = survey(planned, most_s, progress)
    quick = quick_ceilings_of(records)
    if stayed := keep(quick):
        number = count(len(stayed), "thorough ceiling")
        click.echo(f"{number} of {stayed[0].measured_at[:10]} not replaced by a quick one; --thorough does", err=True)
    return plan, records, quick


def measured_for(records: Sequence[Record], known: Ceilings, frameworks: Sequence[str] | None = None) -> None:
    """Measure what the records of this machine lack of a roof, in these frameworks or in all that have its device."""
    lacking: dict[tuple[str, int | None, int | None], list[str]] = {}
    for record in records:
        if record.error is None and record.device and is_lacking_here(record, known):
            precisions = lacking.setdefault((record.device.platform, record.case.gpu, record.case.threads), [])
            if computed_in(record) not in precisions:
                precisions.append(computed_in(record))
    for (device, gpu, threads), precisions in lacking.items():
        where = {"device": device, "gpu": gpu, "threads": threads if device == "cpu" else None}
        measure_quickly(frameworks, precisions, where)


def is_lacking_here(record: Record, known: Ceilings) -> bool:
    """Return whether a record of this machine has no roof, which can be measured."""
    return record.machine.host == gethostname() and known.lacking(record) is not None


def keep(measured: Sequence[Ceiling], also: Path | None = None) -> list[Ceiling]:
    """Store ceilings for the user, and in a file; returns the thorough ones that stay. Raises `UserError`."""
    try:
        if also:
            ceilings.write(also, measured)
        return ceilings.keep(measured)
    except OSError as error:
        where = f"; records: {also.parent}" if also else ""
        raise UserError(f"cannot store the ceilings: {error.filename}: {error.strerror}{where}") from error
