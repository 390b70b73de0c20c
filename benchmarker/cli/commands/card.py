"""`benchmarker card`."""

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.ceiling_measurement import is_lacking_here, measured_for
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options, working
from benchmarker.cli.options.case import case_options, store_options
from benchmarker.cli.options.results import read_cases
from benchmarker.cli.options.types import Integer, frameworks_option, refuse_given
from benchmarker.display.card import card_figures, card_output
from benchmarker.formatting import names_in
from benchmarker.hooks import registry
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.measuring import measured
from benchmarker.planning.diagnostics import diagnostics
from benchmarker.records import ceilings
from benchmarker.roofline.card import card
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL


@click.command("card")
@click.argument("run", type=click.Path(path_type=Path), required=False)
@frameworks_option("Frameworks to measure with. [default: all available here]")
@case_options("gpu")
@click.option(
    "--trials",
    type=Integer(min=1),
    default=MIN_BLOCKS_FOR_INTERVAL,
    help="Trials of each size, each in a fresh process; with fewer than the default, values have no interval.",
)
@store_options
@progress_options
@output_options()
def command(
    run: Path | None, framework: str | None, gpu: int | None, trials: int, results: Path, resume: bool
) -> Output:
    """Show a machine's card: what it computes and moves at most, and how long a launch, a copy and a load take.

    It measures launches in each framework, copies between host and device, and loads from each cache of the CPU, as the
    problems `launch`, `transfer` and `latency`, and then the ceilings in fp32 that are not known yet. This takes about
    8 minutes on a CPU, and 20 with a GPU.

    Values are medians over trials, with 95% intervals; those of a ceiling are its LOW and HIGH. What makes one doubt
    them stands below.

      benchmarker card

      benchmarker card results/RUN

    RUN is the folder of a run of this command, to show it again with the ceilings that are known now.

    The exit status is 1 if a trial failed, or if a file cannot be read.
    """
    if run:
        refuse_given({"framework", "gpu", "trials", "resume"}, "a run that is shown again has its own; leave {} out")
        cases, stored = read_cases((run,), pool=False), ""
    else:
        named = None if framework is None else names_in(framework)
        if named == []:
            raise UserError("--framework names no framework; `benchmarker list frameworks` lists them")
        with working("querying the frameworks' capabilities"):
            plan = diagnostics(named, gpu, trials)
        with Progress() as progress:
            done = measured(plan, results, resume, progress)
        cases, stored = Cases.of(done.records), f"records: {done.path}"
        known, able = ceilings.known(), registry.implementing("gemm")
        measuring = None if named is None else [name for name in named if name in able]
        if measuring != [] and any(is_lacking_here(record, known) for record in done.records):
            click.echo(
                f"next, the ceilings that are not known; without them, `card {done.path}` shows the rest", err=True
            )
            measured_for(done.records, known, measuring)
    paths = [run] if run else []
    found = card(cases, load_metrics(paths), ceilings.known(paths))
    failed = any(record.error for record in cases.records)
    status = int(failed or bool(cases.faults))
    return Output(card_output(found), found, status, csv=lambda: card_figures(found), stored=stored)
