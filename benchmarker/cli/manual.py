r"""The manual page, made from the help of every command: `python -m benchmarker.cli.manual | man -l -`.

The format is that of man(7). A line of text must not begin with `.` or `'`, a backslash is written `\e`, `\-` is a
minus sign that can be copied, and `\[u2013]` a character beyond ASCII. Words are not hyphenated.
"""

import inspect
from collections.abc import Iterator

import click

from benchmarker.cli import group
from benchmarker.cli.commands import LINES, SECTIONS
from benchmarker.version import __version__


def manual() -> str:
    """Return the manual page of the program."""
    context = click.Context(group, info_name="benchmarker", **group.context_settings)
    lines = [
        f'.TH BENCHMARKER 1 "" "benchmarker {__version__}"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"benchmarker \\- {_escaped(inspect.cleandoc(group.help or '').partition('.')[0])}",
        ".SH SYNOPSIS",
        *(
            f".br\n\\fB{_escaped(f'benchmarker {name}')}\\fR {_escaped(_usage(command))}"
            for name, command in _all(context)
        ),
        ".SH DESCRIPTION",
        *_paragraphs(group.help or ""),
    ]
    for section, names in SECTIONS.items():
        lines.append(f".SH {section.upper()}")
        for name, command in _all(context):
            if name in names:
                lines += [f".SS {_escaped(f'benchmarker {name}')} {_escaped(_usage(command))}"]
                lines += [*_paragraphs(command.help or ""), *_options(command, context)]
    return "\n".join(lines) + "\n"


def _all(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, in the order of the help."""
    for name in LINES:
        command: click.Command = group
        for word in name.split():
            assert isinstance(command, click.Group)
            inner = command.get_command(context, word)
            assert inner is not None
            command = inner
        yield name, command


def _usage(command: click.Command) -> str:
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs; an indented one is an example, whose lines are kept."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        is_example = paragraph.startswith(" ")
        yield ".PP"
        yield from [".RS 4", ".nf"] if is_example else []
        yield _escaped(inspect.cleandoc(paragraph) if is_example else paragraph)
        yield from [".fi", ".RE"] if is_example else []


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    own = click.Context(command, parent=context)
    for param in command.get_params(own):
        if isinstance(param, click.Option) and (record := param.get_help_record(own)):
            yield f".TP\n\\fB{_escaped(record[0])}\\fR\n{_escaped(record[1])}"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(character if character.isascii() else f"\\[u{ord(character):04X}]" for character in text)
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


if __name__ == "__main__":
    click.echo(manual(), nl=False)
