"""`benchmarker run`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import click

from benchmarker import gpus, plan, store
from benchmarker.abilities import usable
from benchmarker.api import MODES, Measuring
from benchmarker.cli.asking import ProblemCommand, ask, names_of, what_options
from benchmarker.cli.output import json_option, print_json
from benchmarker.cli.progress import Progress, working
from benchmarker.cli.tables import as_plain, print_records
from benchmarker.execute import execute
from benchmarker.metrics import deriver

_MEASURING = Measuring()


@click.command("run", cls=ProblemCommand, short_help="Measure a problem.")
@click.option("--framework", required=True, metavar="NAME[,NAME...]", help="Frameworks to measure.")
@what_options
@click.option(
    "--mode",
    type=click.Choice(MODES),
    metavar=f"[{'|'.join(MODES)}]",
    default="inference",
    show_default=True,
    help="What a step does.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Fresh processes for each case.",
)
@click.option("--preheat", is_flag=True, help="Before timing, run until the rate stands still.")
@click.option(
    "--preheat-max",
    "preheat_max_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=_MEASURING.preheat_max_s,
    show_default=True,
    help="Longest preheat.",
)
@click.option(
    "--warmup-steps",
    type=click.IntRange(min=1),
    default=_MEASURING.warmup_steps,
    show_default=True,
    help="Steps before timing, without --preheat.",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    default=_MEASURING.blocks,
    show_default=True,
    help="Most timed blocks.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=_MEASURING.seconds,
    show_default=True,
    help="Longest timed part.",
)
@click.option(
    "--median-precision",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="SHARE",
    help="Stop early when the median is known to ± this share (95% interval); 0.01 is 1%.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=_MEASURING.timeout_s,
    show_default=True,
    help="Longest trial; then its worker is ended.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder that records go to.",
)
@click.option("--resume", is_flag=True, help="Go on with the newest unfinished run of this same command.")
@json_option
def command(framework: str, trials: int, results: Path, resume: bool, as_json: bool, **options: Any) -> int:
    """Measure a problem in one framework or several; store a record for each trial and print a table.

    Each trial is a fresh process: check against a float64 reference, build, compile, preheat or warm up, time.
    Records go to a new folder below --results. The exit status is 1 where a trial failed.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measuring = Measuring(**{name: options.pop(name) for name in Measuring.__struct_fields__})
    question = ask(options, measuring=measuring)
    asked = question.asked
    environment = gpus.environment(asked.gpu, os.environ)
    names = names_of(framework, asked.problem)
    with working(f"asking {', '.join(names)} what they do here"):
        able = usable(asked.problem, names, environment)
    cases = [plan.make_case(asked, question.problem, name, ability) for name, ability in able.items()]
    plan.same_device(cases)
    wanted = plan.make_plan(cases, trials)
    opened = store.unfinished_run(results, wanted) if resume else store.new_run(results, wanted)
    with opened as folder, Progress() as progress:
        records = execute(folder, progress)
    derive = deriver()
    if as_json:
        print_json([as_plain(record, derive(record)) for record in records])
    else:
        print_records(records, derive)
        click.echo(f"\nrecords: {folder.path}", err=True)
    return 1 if any(record.error for record in records) else 0
