"""The problem named by `--problem`: its own options, what was asked of it, and the frameworks that implement it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from benchmarker.api.case import CaseRequest
from benchmarker.api.errors import UserError
from benchmarker.api.problem import Problem
from benchmarker.api.program import is_program
from benchmarker.cli.options.target import expanded
from benchmarker.cli.options.types import Choice
from benchmarker.formatting import names_in, value_text
from benchmarker.hooks import parameters, registry

OPTIONS = f"{__name__}.options"
"""Where a context keeps the options of the problem that its command names."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem and what was requested of it."""

    problem: type[Problem]
    asked: CaseRequest


def ask(options: dict[str, Any], **more: Any) -> Question:
    """Build the question from parsed options; removes the problem's own parameters from `options`.

    Raises `UserError` if a parameter is invalid, before any framework is started.
    """
    problem, given = problem_of(options)
    parameters.resolve(problem, given, "cpu")
    return Question(problem, CaseRequest(params=given, **options, **more))


def problem_of(options: dict[str, Any]) -> tuple[type[Problem], dict[str, Any]]:
    """Return the problem of parsed options and those of its parameters that were given; removes them from `options`."""
    problem = registry.problem(options["problem"])
    given = {field.name: options.pop(field.name, None) for field in parameters.fields(problem)}
    return problem, {name: value for name, value in given.items() if value is not None}


def problems_in(text: str) -> list[str]:
    """Return the problems that a text names, separated by commas; a program or a file is one, whatever its name."""
    return [text] if is_program(text) or registry.source_file(text) else names_in(text) or [text]


class ProblemCommand(click.Command):
    """A command that looks for the problem before parsing and adds that problem's parameters as options.

    That is the value of `--problem`, or if it is an `argument` the first word that names one. Without any argument it
    raises `UserError` with an `example`, if it has one. With `lists`, several problems can be named, whose parameters
    are those that all of them have, and the options take lists of values. Parameters that are `set_otherwise` are no
    options.
    """

    def __init__(
        self,
        *args: Any,
        example: str = "",
        argument: bool = False,
        lists: bool = False,
        set_otherwise: Callable[[type[Problem]], Collection[str]] = lambda _: (),
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        self.example = example
        self.argument = argument
        self.lists = lists
        self.set_otherwise = set_otherwise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with the problem's options; raises `UserError` if the problem is unknown."""
        if not args and self.example and not ctx.resilient_parsing:
            raise no_options(self.example)
        if not self.argument:
            if args and args[0] in problem_names() and not Path(args[0]).exists():
                raise UserError(f"{args[0]} is a problem; name it with --problem={args[0]}")
            args = expanded(args, has_framework=any("--framework" in param.opts for param in self.params))
        problem = _first(args) if self.argument else named(args)
        try:
            options = self._options(problem) if problem else []
        except UserError:
            if not ctx.resilient_parsing:
                raise
            options = []
        own = {*ctx.help_option_names, *(text for param in self.params for text in (param.name, *param.opts))}
        if twice := [param.name for param in options if own.intersection((param.name, *param.opts))]:
            raise UserError(f"{problem} has a parameter {twice[0]!r}, which is a common option; rename the parameter")
        ctx.meta[OPTIONS] = options
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options and the problem's."""
        return [*super().get_params(ctx), *ctx.meta.get(OPTIONS, ())]

    def _options(self, text: str) -> list[click.Parameter]:
        made, *others = map(registry.problem, problems_in(text) if self.lists else [text])
        left_out = self.set_otherwise(made)
        shared = set(parameters.names(made)).difference(left_out).intersection(*map(parameters.names, others))
        return [_option(field, self.lists) for field in parameters.fields(made) if field.name in shared]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write two sections of options, or one and a hint if no problem is named."""
        options = (param for param in super().get_params(ctx) if isinstance(param, click.Option))
        own = [param.get_help_record(ctx) for param in options]
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record])
        if any(param.type.name == "time" for param in self.params):
            formatter.write_paragraph()
            formatter.write_text("TIME is a number of seconds, or has a unit: 250ms, 90s, 10m, 1.5h.")
        theirs = [param.get_help_record(ctx) for param in ctx.meta.get(OPTIONS, ())]
        if theirs:
            with formatter.section("Options of this problem"):
                formatter.write_dl([record for record in theirs if record])
            if self.lists:
                formatter.write_paragraph()
                formatter.write_text(
                    "Each takes a list of values, 8,16; 1K..1G is 1024 and its doubles up to 2^30. A case of each "
                    "combination is measured."
                )
        else:
            formatter.write_paragraph()
            formatter.write_text(
                f"Each problem has its own options; {'' if self.argument else '--problem='}NAME --help shows them. "
                f"Problems: "
                f"{', '.join(problem_names())}."
            )


def no_options(example: str) -> UserError:
    """Return the error of a command that cannot do anything without options."""
    return UserError(f"no options were given; for example: benchmarker {example}; --help shows all")


def names_of(frameworks: str, problem: str) -> list[str]:
    """Split comma-separated framework names, each once; raises `UserError` if one does not implement the problem."""
    names = names_in(frameworks)
    if not names:
        raise UserError("--framework names no framework; `benchmarker list frameworks` lists them")
    for name in names:
        registry.find(f"framework.{name}")
        if name not in (known := registry.implementing(problem)):
            raise UserError(
                f"{name} has no implementation of {problem}; frameworks that have one: {', '.join(known) or 'none'}"
            )
    return names


def named(args: list[str]) -> str | None:
    """Return the value of the last `--problem` among the arguments."""
    found = None
    for word, following in pairwise([*args, ""]):
        if word.startswith("--problem="):
            found = word.partition("=")[2]
        elif word == "--problem":
            found = following
    return found


def _first(args: list[str]) -> str | None:
    """Return the first of the arguments that is a problem, or the first that is no option; None if there is none."""
    words = [word for word in args if not word.startswith("-")]
    return next((word for word in words if word in problem_names()), words[0] if words else None)


def problem_names() -> list[str]:
    """Return the names of the problems."""
    return [plugin.name for plugin in registry.registered("problem").values()]


def _as_lines(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the values of a repeated option as lines; None if it was not given."""
    return "\n".join(values) if values else None


def _option(field: parameters.Field, lists: bool) -> click.Option:
    """Return a parameter as an option; its value is checked later, with all others, so any text is accepted here."""
    defaults = [] if field.default is None else [f"default: {value_text(field.default)}"]
    if field.accelerator_default not in (field.default, None):
        defaults.append(f"on accelerators: {value_text(field.accelerator_default)}")
    text = "; ".join(part for part in (field.help, ", ".join(defaults)) if part)
    if field.type == "bool":
        return click.Option([f"{field.option}/--no-{field.option[2:]}", field.name], default=None, help=text)
    if field.lines:
        text += "; may be repeated"
        return click.Option(
            [field.option, field.name], multiple=True, callback=_as_lines, metavar="TEXT", default=None, help=text
        )
    kind = Choice(field.choices) if field.choices and not lists else None
    metavar = f"[{'|'.join(field.choices)}]" if field.choices else f"{field.type.upper()} {field.range}".strip()
    return click.Option([field.option, field.name], type=kind, metavar=metavar, default=None, help=text)
