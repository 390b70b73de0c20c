"""Options that define what is measured or checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarker.api.case import MODES, Measuring
from benchmarker.api.precision import PRECISIONS
from benchmarker.cli.options import completion
from benchmarker.cli.options.devices import DEVICES, SEVERAL_DEVICES
from benchmarker.cli.options.power import POWER
from benchmarker.cli.options.types import Choice, Duration, Folder, Integer, Number

_F = TypeVar("_F", bound=Callable[..., Any])

_GPUS = click.option(
    "--gpus", "gpu", type=Integer(min=0), metavar="INDEX", help="Index of the GPU among the visible ones."
)


def _problem(*, required: bool) -> Callable[[_F], _F]:
    return click.option(
        "--problem",
        required=required,
        metavar="NAME",
        shell_complete=completion.plugins("problem"),
        help="The problem; add --help to list its own options.",
    )


_PRECISION = click.option(
    "--precision",
    type=Choice(list(PRECISIONS)),
    metavar=f"[{'|'.join(PRECISIONS)}]",
    default="fp32",
    show_default=True,
    help="Precision; a name means the same in every framework.",
)
_MODEL = (_problem(required=True), _PRECISION)
_DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="PLATFORM",
    help="A platform that the framework reports (cpu, cuda, rocm, tpu), gpu, or auto: the framework's choice.",
)
_PLACE = (
    _DEVICE,
    _GPUS,
    click.option(
        "--threads",
        type=Integer(min=1),
        metavar="N",
        help="CPU threads to compute with. [default: the framework's own]",
    ),
    click.option("--compile", is_flag=True, help="Compile the step, in a framework where this is optional."),
)
_WHAT = (
    *_MODEL,
    *_PLACE,
    click.option(
        "--seed",
        type=Integer(min=0),
        metavar="N",
        default=0,
        show_default=True,
        help="Seed for weights and inputs.",
    ),
)

_DEFAULT = Measuring()
_MODE = click.option(
    "--mode",
    type=Choice(MODES),
    metavar=f"[{'|'.join(MODES)}]",
    default="inference",
    show_default=True,
    help="Work done in each step.",
)
_MEASURING = (
    click.option("--preheat", is_flag=True, help="Before timing, run until the step rate is stable."),
    click.option(
        "--preheat-max",
        "preheat_max_s",
        type=Duration(min=0, min_open=True),
        default=f"{_DEFAULT.preheat_max_s:g}s",
        show_default=True,
        help="Maximum duration of the preheat.",
    ),
    click.option(
        "--warmup-steps",
        type=Integer(min=0),
        default=_DEFAULT.warmup_steps,
        show_default=True,
        help="Warm-up steps before timing, if there is no --preheat.",
    ),
    click.option(
        "--blocks",
        type=Integer(min=1),
        default=_DEFAULT.blocks,
        show_default=True,
        help="Maximum number of timed blocks, unless --power-min requires more.",
    ),
    click.option(
        "--seconds",
        type=Duration(min=0, min_open=True),
        default=f"{_DEFAULT.seconds:g}s",
        show_default=True,
        help="Maximum duration of the timed part, unless --power-min requires more.",
    ),
    click.option(
        "--median-precision",
        type=Number(min=0, max=1, min_open=True),
        metavar="SHARE",
        help="Stop early when the 95% interval of the median is within ± this share; 0.01 is 1%.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=Duration(min=0, min_open=True),
        default=f"{_DEFAULT.timeout_s:g}s",
        show_default=True,
        help="Time limit of a trial; a trial that exceeds it is terminated and counts as failed.",
    ),
    *POWER,
    click.option("--profile", is_flag=True, help="Profile some steps after the timed ones, in a separate process."),
    click.option(
        "--profile-steps",
        type=Integer(min=1),
        default=_DEFAULT.profile_steps,
        show_default=True,
        help="Number of profiled steps, with --profile.",
    ),
    click.option(
        "--separable",
        is_flag=True,
        help="Profile without fusion across scopes where possible; the profiled program differs from the timed one.",
    ),
)
_STORE = (
    click.option(
        "--results",
        type=Folder(),
        default=Path("results"),
        show_default=True,
        help="Folder for the records.",
    ),
    click.option(
        "--resume", is_flag=True, help="Continue the newest unfinished run with the same cases, trials and design."
    ),
)


def _all(options: Sequence[Callable[[Any], Any]]) -> Callable[[_F], _F]:
    """Return a decorator that adds several options to a command."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


PAUSE_S = 3600.0
"""Default pause between runs: long against most of what changes on a shared machine (docs/comparing.md)."""
spread_options = _all(
    (
        click.option(
            "--runs",
            type=Integer(min=1),
            default=1,
            show_default=True,
            metavar="N",
            help="Spread the rounds over N runs with pauses between, so that intervals contain how runs differ.",
        ),
        click.option(
            "--pause",
            "pause_s",
            type=Duration(min=0),
            metavar="TIME",
            help=f"Shortest pause between two of the --runs. [default: {PAUSE_S / 3600:g}h]",
        ),
    )
)
"""The options that spread a run over time."""
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Run nothing; show what would run and how long it would take."
)
"""The option to show a plan instead of running it."""
gpus_option = _GPUS
"""The option that selects a GPU."""
work_options = _all([*_MODEL, _MODE])
"""Options that define the work of a step: the problem, the precision and the mode."""
described_options = _all([_PRECISION, _MODE, _DEVICE])
"""Options that define the work of a step of a problem that is named otherwise, and the device that is to do it."""
engine_options = _all([_problem(required=False), _PRECISION, *_PLACE])
"""Options that define a text-generation engine; none is required."""
what_options = _all(_WHAT)
"""Options that define what is measured or checked."""
measuring_options = _all([_MODE, *DEVICES, *_MEASURING])
"""Options that define how it is measured: the mode, the devices, and the fields of `Measuring` by name."""
measuring_several_options = _all([_MODE, *SEVERAL_DEVICES, *_MEASURING])
"""The same with lists: the numbers of `devices`, the `parallels` or None, and the `scalings`."""
store_options = _all(_STORE)
"""Options that define where records are stored."""
