"""`benchmarker scaling`."""

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.options.results import pool_option, read_cases, results_argument
from benchmarker.cli.options.types import figure_option
from benchmarker.comparing.scaling import scalings
from benchmarker.display.scaling import scalings_output
from benchmarker.hooks.metrics import cached, load_metrics
from benchmarker.page import plots
from benchmarker.records import store

MOST_REASONS = 3
"""Cases that the error names if nothing is scaled."""


@click.command("scaling")
@results_argument
@figure_option("Write the speed-ups")
@pool_option
@store.uncollected()
@output_options()
def command(results: tuple[Path, ...], output: Path | None, pool: bool) -> Output:
    """Show how much faster several devices are than one: speed-up, efficiency, samples/s of each device.

    RESULT is a record, the folder of a run, a folder of runs, or an archive; of several folders, each is a side. A
    series is a case on one device and the cases on several devices with the same total work (strong scaling) or the
    same work per device (weak scaling). The speed-up is the ratio of the samples in the same time, as `compare`
    computes it; the efficiency is the speed-up divided by the number of devices.

      benchmarker run --framework=torch --problem=gpt2 --mode=training --batch-size=8 --devices=1,2,4

    For cases measured with `run --independent`, it shows a table by device and names the slowest.

    The exit status is 1 if a file cannot be read.
    """
    cases = read_cases(results, pool)
    scaled = scalings(cases, cached(load_metrics(results)))
    if not (scaled.series or scaled.devices):
        why = scaled.left_out[:MOST_REASONS] or ["every case is of one device; give run --devices=1,2,4"]
        raise UserError(f"nothing is scaled: {'; '.join(why)}")
    if output:
        from benchmarker.page.scaling import speedups_figure

        if not scaled.series:
            raise UserError("no series of several numbers of devices to draw")
        click.echo(plots.save(speedups_figure(scaled), output), err=True)
    return Output(scalings_output(scaled), scaled, 1 if cases.faults else 0)
