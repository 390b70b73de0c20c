"""Command lines that are parsed, and those in which a path stands."""

from collections.abc import Iterator

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


def with_path(name: str, path: str, sound: str) -> Iterator[tuple[str, ...]]:
    """The command lines of a command in which one path, each in turn, is `path`; other arguments are `sound` paths."""
    command = named(name)
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    for tried in command.params:
        if isinstance(tried.type, click.Path):
            option = [] if tried in arguments else [f"{tried.opts[-1]}={path}"]
            words = [
                path if param is tried else sound if isinstance(param.type, click.Path) else "SELECT 1"
                for param in arguments
            ]
            yield (*name.split(), *option, *words)
