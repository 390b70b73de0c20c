"""The options that say what is measured or checked, those of the problem that `--problem` names among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarker.api.case import MODES, Measuring
from benchmarker.api.errors import UserError
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Problem
from benchmarker.cli.options.power import POWER
from benchmarker.cli.options.types import Number
from benchmarker.hooks import parameters, registry
from benchmarker.planning.cases import Asked

_F = TypeVar("_F", bound=Callable[..., Any])

_WHAT = (
    click.option("--problem", required=True, metavar="NAME", help="With --help, this problem's own options are shown."),
    click.option(
        "--precision",
        type=click.Choice(list(PRECISIONS)),
        metavar=f"[{'|'.join(PRECISIONS)}]",
        default="fp32",
        show_default=True,
        help="One name means one thing in every framework.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        metavar="PLATFORM",
        help="A platform that the framework reports (cpu, cuda, rocm, tpu), or gpu, or auto: what it prefers.",
    ),
    click.option("--gpus", "gpu", type=click.IntRange(min=0), metavar="INDEX", help="Which of the visible GPUs."),
    click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads to compute with."),
    click.option("--compile", is_flag=True, help="Compile the step, where the framework leaves the choice."),
    click.option(
        "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Of weights and inputs."
    ),
)

_DEFAULT = Measuring()
_MEASURING = (
    click.option(
        "--mode",
        type=click.Choice(MODES),
        metavar=f"[{'|'.join(MODES)}]",
        default="inference",
        show_default=True,
        help="What a step does.",
    ),
    click.option("--preheat", is_flag=True, help="Before timing, run until the rate stands still."),
    click.option(
        "--preheat-max",
        "preheat_max_s",
        type=Number(min=0, min_open=True),
        metavar="SECONDS",
        default=_DEFAULT.preheat_max_s,
        show_default=True,
        help="Longest preheat.",
    ),
    click.option(
        "--warmup-steps",
        type=click.IntRange(min=1),
        default=_DEFAULT.warmup_steps,
        show_default=True,
        help="Steps before timing, without --preheat.",
    ),
    click.option(
        "--blocks",
        type=click.IntRange(min=1),
        default=_DEFAULT.blocks,
        show_default=True,
        help="Most timed blocks, if --power-min does not want more.",
    ),
    click.option(
        "--seconds",
        type=Number(min=0, min_open=True),
        default=_DEFAULT.seconds,
        show_default=True,
        help="Longest timed part, if --power-min does not want more.",
    ),
    click.option(
        "--median-precision",
        type=Number(min=0, max=1, min_open=True),
        metavar="SHARE",
        help="Stop early when the median is known to ± this share (95% interval); 0.01 is 1%.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=Number(min=0, min_open=True),
        metavar="SECONDS",
        default=_DEFAULT.timeout_s,
        show_default=True,
        help="Longest trial; then its worker is ended.",
    ),
    *POWER,
    click.option("--profile", is_flag=True, help="Profile some steps after the timed ones, in a process of its own."),
    click.option(
        "--profile-steps",
        type=click.IntRange(min=1),
        default=_DEFAULT.profile_steps,
        show_default=True,
        help="Profiled steps, with --profile.",
    ),
    click.option(
        "--separable",
        is_flag=True,
        help="Profile with what keeps scopes apart that are fused by default; its times are those of another program.",
    ),
)
_STORE = (
    click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("results"),
        show_default=True,
        help="Folder that records go to.",
    ),
    click.option(
        "--resume", is_flag=True, help="Go on with the newest unfinished run of the same cases, trials and design."
    ),
)


def _all(options: Sequence[Callable[[Any], Any]]) -> Callable[[_F], _F]:
    """A decorator that gives a command several options."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


what_options = _all(_WHAT)
"""The options that say what is measured or checked."""
measuring_options = _all(_MEASURING)
"""The options that say how: the mode, and the fields of `Measuring` by their names."""
store_options = _all(_STORE)
"""The options that say where records go."""


@dataclass(frozen=True, slots=True)
class Question:
    """The problem made, and what was asked of it."""

    problem: Problem
    asked: Asked


def ask(options: dict[str, Any], **more: Any) -> Question:
    """Make of parsed options what was asked; the problem's own are taken out of `options` by its parameters.

    Raises `UserError` for a mistake in a parameter, before any framework is started.
    """
    problem: Problem = registry.load([f"problem.{options['problem']}"]).hook.make_problem()
    given = {field.name: options.pop(field.name) for field in parameters.fields(problem)}
    given = {name: value for name, value in given.items() if value is not None}
    parameters.resolve(problem, given, "cpu")
    return Question(problem, Asked(params=given, **options, **more))


class ProblemCommand(click.Command):
    """Looks for `--problem` before parsing, and adds that problem's parameters as options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse with the problem's options; raises `UserError` for an unknown problem."""
        problem = _named(args)
        self.problem_options = _options(problem) if problem else []
        own = {param.name for param in self.params}
        if twice := [param.name for param in self.problem_options if param.name in own]:
            raise UserError(f"problem.{problem} has a parameter {twice[0]!r}, which is an option of every problem")
        return super().make_context(info_name, args, parent, **extra)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options and the problem's."""
        return [*super().get_params(ctx), *self.problem_options]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two sections of options, or a hint where no problem is named."""
        own = [param.get_help_record(ctx) for param in super().get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record])
        theirs = [param.get_help_record(ctx) for param in self.problem_options]
        if theirs:
            with formatter.section("Options of this problem"):
                formatter.write_dl([record for record in theirs if record])
        else:
            names = ", ".join(plugin.name for plugin in registry.registered("problem").values())
            formatter.write_paragraph()
            formatter.write_text(f"With --problem=NAME --help, that problem's own options are shown: {names}.")


def names_of(frameworks: str, problem: str) -> list[str]:
    """Names with commas between, each once; raises `UserError` where one has no implementation of the problem."""
    names = list(dict.fromkeys(name.strip() for name in frameworks.split(",") if name.strip()))
    if not names:
        raise UserError("--framework names no framework; `benchmarker list frameworks` shows them")
    for name in names:
        registry.find(f"framework.{name}")
        if name not in (known := registry.implementing(problem)):
            raise UserError(f"{name} has no implementation of {problem}; there are: {', '.join(known) or 'none'}")
    return names


def _named(args: list[str]) -> str | None:
    """The value of the last `--problem` among the arguments."""
    found = None
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word.startswith("--problem="):
            found = word.partition("=")[2]
        elif word == "--problem":
            found = following
    return found


def _options(problem: str) -> list[click.Parameter]:
    made = registry.load([f"problem.{problem}"]).hook.make_problem()
    return [_option(field) for field in parameters.fields(made)]


def _option(field: parameters.Field) -> click.Option:
    """One parameter as an option; its value is checked with all others, so here it may be any text."""
    shown = "" if field.default is None else f"default: {_text(field.default)}"
    if field.accelerator_default != field.default:
        shown += f", not on a CPU: {_text(field.accelerator_default)}"
    text = "; ".join(part for part in (field.help, shown) if part)
    if field.type == "bool":
        return click.Option([f"{field.option}/--no-{field.option[2:]}", field.name], default=None, help=text)
    kind = click.Choice(field.choices) if field.choices else None
    metavar = None if field.choices else f"{field.type.upper()} {field.range}".strip()
    return click.Option([field.option, field.name], type=kind, metavar=metavar, default=None, help=text)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
