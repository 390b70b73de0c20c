"""`benchmarker env`."""

from __future__ import annotations

import click
import msgspec

from benchmarker import machine
from benchmarker.cli.output import clean, json_option, print_json, print_table
from benchmarker.record import Machine


@click.command("env", short_help="Describe this machine.")
@json_option
def command(as_json: bool) -> None:
    """Describe this machine as a record will, and say what will make its timings noisy."""
    here = machine.describe()
    noise = machine.noise(here)
    if as_json:
        print_json({"machine": here, "python": machine.python_version(), "commit": machine.commit(), "noise": noise})
        return
    print_table(None, [*machine_rows(here), ["Python", machine.python_version()]])
    click.echo("\nWhat will make timings noisy:" if noise else "\nNothing was found that makes timings noisy.")
    for sentence in noise:
        click.echo(f"  - {clean(sentence)}")


def machine_rows(here: Machine) -> list[list[str]]:
    """A machine as rows of (name, value)."""
    cpu = here.cpu
    rows = [
        ["host", here.host],
        ["system", f"{here.os}, {here.kernel}"],
        ["processor", cpu.model],
        [
            "cores",
            f"{cpu.usable_cores} usable of {cpu.logical_cores} logical, {cpu.physical_cores or '?'} physical",
        ],
        ["governor", cpu.governor or "not shown"],
        ["memory", f"{here.memory_bytes / 2**30:.1f} GiB"],
        ["load average", f"{here.load_average_1min:.2f}"],
    ]
    for name in ("virtualization", "container", "cpu_quota_cores", "steal_percent"):
        value = getattr(here, name)
        if value is not None:
            rows.append([name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else value])
    for gpu in here.gpus:
        known = {name: value for name, value in msgspec.structs.asdict(gpu).items() if value is not None}
        rows.append([f"GPU {gpu.index}", ", ".join(f"{name} {value}" for name, value in known.items())])
    return rows
