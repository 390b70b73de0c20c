"""Options that define what is measured or checked; those of every case follow from the types in `api/case.py`."""

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from benchmarker.api.errors import UserError
from benchmarker.cli.options.types import (
    Duration,
    Integer,
    RefusedValue,
    Several,
    all_of,
    complete_plugin,
    frameworks_option,
    results_option,
)
from benchmarker.formatting import sentence, value_text
from benchmarker.hooks import parameters
from benchmarker.hooks.parameters import Setting
from benchmarker.machine import perf_events
from benchmarker.power import samplers

_F = TypeVar("_F", bound=Callable[..., Any])
_VALUES = {"int": "N", "float": "NUMBER", "time": "TIME"}
"""What stands for the value of an option in help."""
_LONGEST = 100
"""Most characters of the choices that stand for a value; more are listed in the text, where lines can break."""
_CHECKS: Mapping[str, Callable[[str], object]] = {"power": samplers.meters, "counters": perf_events.chosen}
"""What refuses unknown names in the value of an option."""
WORK = ("problem", "mode", "precision")
"""Settings that define the work of a step."""
WHAT = ("problem", "precision", "device", "gpu", "threads", "compile", "seed")
"""Settings that define what is measured or checked."""


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A value of a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.name = setting.type

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value in its type."""
        try:
            return self.setting.converted(value)
        except ValueError as error:
            raise RefusedValue(value, str(error), param, ctx) from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the choices that begin like this."""
        return [CompletionItem(choice) for choice in self.setting.choices if choice.startswith(incomplete)]


def _option(setting: Setting, *, required: bool, is_list: bool) -> Callable[[_F], _F]:
    default = setting.default_text
    if setting.default is not None and setting.type != "bool":
        default = f"{setting.default:g}s" if setting.type == "time" else value_text(setting.default)
    choices = f"[{'|'.join(setting.choices)}]" if setting.choices else ""
    listed = len(choices) > _LONGEST
    notes = "; ".join(
        [f"one of {', '.join(setting.choices)}"] * listed
        + [f"default: {default}"] * bool(default)
        + [setting.range] * bool(setting.range)
    )
    text = sentence(setting.help) + (f"  [{notes}]" if notes else "")
    if setting.type == "bool":
        flags = f"{setting.option}/--no-{setting.option[2:]}"
        return click.option(flags, setting.name, default=setting.default, show_default=False, help=text)
    metavar = setting.values or ("NAME" if listed else choices) or _VALUES[setting.type]
    words = ("all",) if is_list and setting.name == "devices" else ()
    if is_list:
        metavar = "|".join([f"{metavar}[,...]", *words])
    return click.option(
        setting.option,
        setting.name,
        type=Several(_Value(setting), words) if is_list else _Value(setting),
        required=required,
        metavar=metavar,
        shell_complete=complete_plugin("problem") if setting.name == "problem" else None,
        callback=_checked if setting.name in _CHECKS else None,
        help=text,
        show_default=False,
        **({} if setting.default is None else {"default": setting.default}),
    )


def _checked(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return a list of names; raises `UserError` if one is unknown."""
    assert option.name is not None
    _CHECKS[option.name](value)
    return value


def case_options(*names: str, optional: bool = False, lists: Collection[str] = ()) -> Callable[[_F], _F]:
    """Add the options of these settings, or of all; with `optional`, the problem need not be given.

    Those of `lists` take several values.
    """
    options: list[Callable[[Any], Any]] = []
    for name, setting in parameters.settings().items():
        if name in names or not names:
            options.append(_option(setting, required=name == "problem" and not optional, is_list=name in lists))
            if name == "power":
                options.append(
                    click.option(
                        "--power-nvml",
                        name,
                        flag_value="nvml",
                        show_default=False,
                        help="Same as --power=nvml.",
                        default=setting.default,
                    )
                )
    return all_of(*options)


PAUSE_S = 3600.0
"""Default pause between runs: long against most of what changes on a shared machine (docs/comparing.md)."""
spread_options = all_of(
    click.option(
        "--runs",
        type=Integer(min=1),
        default=1,
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
"""The options that spread a run over time."""
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Run nothing; show what would run and how long it would take."
)
"""The option to show a plan instead of running it."""
store_options = all_of(
    results_option(),
    click.option(
        "--resume", is_flag=True, help="Continue the newest unfinished run with the same cases, trials and design."
    ),
)
"""Options that define where records are stored."""


def suite_options(function: _F) -> _F:
    """Add the options that replace what a suite says; the command gets them as `frameworks` and `settings`."""

    @wraps(function)
    def command(framework: str | None, device: str | None, threads: int | None, **given: Any) -> Any:
        frameworks = [] if framework is None else [name.strip() for name in framework.split(",")]
        if not all(frameworks):
            raise UserError(f"--framework={framework}: a name is missing")
        settings = {name: value for name, value in (("device", device), ("threads", threads)) if value is not None}
        return function(frameworks=frameworks, settings=settings, **given)

    return all_of(
        frameworks_option("Frameworks to measure, instead of those of the suite."),
        click.option(
            "--device",
            metavar="PLATFORM",
            help="A platform that the frameworks report, or gpu. [default: the framework's choice]",
        ),
        click.option(
            "--threads",
            type=Integer(min=1),
            metavar="N",
            help="CPU threads to compute with. [default: the frameworks' own]",
        ),
    )(command)  # type: ignore[return-value]
