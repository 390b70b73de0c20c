"""One side of a comparison as options of `run`."""

import shlex
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from benchmarker.api.errors import UserError
from benchmarker.api.program import is_program
from benchmarker.cli.options.case import case_options
from benchmarker.cli.options.problem import ProblemCommand, names_of, problem_of
from benchmarker.cli.options.target import program_in
from benchmarker.cli.options.types import complete_plugin
from benchmarker.hooks import parameters


@click.command("side", cls=ProblemCommand, add_help_option=False)
@click.option("--framework", required=True, shell_complete=complete_plugin("framework"))
@case_options()
def _side(**options: Any) -> dict[str, Any]:
    """Parse one side: the options of `run` that define what is measured and how."""
    return options


def words_of(own: str) -> list[str]:
    """Return the options in a text, or those for a program and its arguments."""
    return shlex.split(own) if own.startswith("-") else program_in(own)


def settings_of(side: str, common: Sequence[str], own: str) -> dict[str, Any]:
    """Return the settings of one side, from the common options and its own.

    Raises `UserError`, naming the side once, if the options are invalid.
    """
    try:
        try:
            words = [*common, *words_of(own)]
        except ValueError as error:
            raise UserError(f"{error} in {own!r}") from error
        side_context = _side.make_context("ab", words, parent=click.get_current_context())
        given = side_context.get_parameter_source
        options = {
            name: value
            for name, value in side_context.params.items()
            if name == "device" or given(name) is ParameterSource.COMMANDLINE
        }
        if len(names := names_of(options["framework"], options["problem"])) > 1:
            raise UserError(f"--framework={options['framework']}: name one framework for each side")
        options["framework"] = names[0]
        problem, params = problem_of(options)
        parameters.resolve(problem, params, "cpu")
        if is_program(options["problem"]):
            lists = parameters.listed(problem, params)
            params = {name: values if len(values) > 1 else values[0] for name, values in lists.items()}
        return {**options, **params}
    except click.ClickException as error:
        raise UserError(f"{side}: {error.format_message()}") from error
    except UserError as error:
        raise UserError(f"{side}: {str(error).removeprefix(f'{side}: ')}") from error
