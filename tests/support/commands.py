"""Command lines that are parsed, but not run."""

import click

from benchmarker.cli import group


def named(name: str) -> click.Command:
    """The command of a name such as `suite run`."""
    command: click.Command = group
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None, name
        command = found
    return command


def parsed(*words: str) -> click.Context:
    """The context of the command that a command line leads to."""
    context = group.make_context("benchmarker", list(words))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context
