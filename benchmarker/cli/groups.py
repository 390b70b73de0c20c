"""Groups of commands: a command's module is imported when it is called, and a near miss gets a suggestion."""

import importlib
from typing import Any

import click
from click.shell_completion import CompletionItem

from benchmarker.api.errors import UserError
from benchmarker.cli.commands import GROUPS, LINES, MEANT, MODULES, SECTIONS

ALIKE = 0.7
"""Least similarity of a word to a name that it may be a misspelling of: `init` is none of `import`."""


def module_of(name: str) -> str:
    """Return the module of a command, below `benchmarker.cli.commands`."""
    return MODULES.get(name) or name.replace("-", "_").replace(" ", ".")


class Group(click.Group):
    """The commands whose names begin with `prefix`: empty for the program itself, `plan ` for a group."""

    def __init__(self, *args: Any, prefix: str = "", **named: Any) -> None:
        super().__init__(*args, **named)
        self.prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands and groups of commands in the order in which a user needs them."""
        names = (name.removeprefix(self.prefix) for name in LINES if name.startswith(self.prefix))
        return list(dict.fromkeys(name.partition(" ")[0] for name in names))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command or group with this name, or None if there is none."""
        name = self.prefix + cmd_name.replace("_", "-")
        if name in GROUPS:
            return Group(cmd_name, prefix=f"{name} ", help=GROUPS[name])
        if name not in LINES:
            return None
        module = importlib.import_module(f"benchmarker.cli.commands.{module_of(name)}")
        return next(
            command
            for command in vars(module).values()
            if isinstance(command, click.Command) and command.name == name.rpartition(" ")[2]
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; raises `UserError` with the nearest name if there is none."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            near = self._near(ctx, args[0])
            hint = f"did you mean {near}?" if near else f"`{ctx.command_path} --help` lists the commands"
            raise UserError(f"no command {self.prefix + args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass options that are not the program's own to `run`; without words, the program prints its help."""
        if not args and not ctx.resilient_parsing:
            if self.prefix:
                raise UserError(f"no command was given; there are: {', '.join(self._names())}")
            args = ["--help"]
        own = [name for param in self.get_params(ctx) for name in param.opts]
        if not self.prefix and args and args[0].startswith("-") and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, by section."""
        width = max(map(len, self._names())) - len(self.prefix)
        for title, lines in SECTIONS.items():
            rows = [
                (name.removeprefix(self.prefix).ljust(width), line)
                for name, line in lines.items()
                if name.startswith(self.prefix)
            ]
            if rows:
                with formatter.section("Commands" if self.prefix else title):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin like this; the program's options include those of `run`."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=LINES.get(self.prefix + name) or GROUPS.get(name)) for name in names]
        items += click.Command.shell_complete(self, ctx, incomplete)
        if incomplete.startswith("-") and not self.prefix:
            run = self.get_command(ctx, "run")
            assert run is not None
            items += run.shell_complete(run.make_context("run", [], parent=ctx, resilient_parsing=True), incomplete)
        return items

    def _names(self) -> list[str]:
        """Return the full names of all commands below this one."""
        return [name for name in LINES if name.startswith(self.prefix)]

    def _near(self, ctx: click.Context, word: str) -> str | None:
        """Return the command that a word means, or whose name or name in its group is spelt most alike."""
        import difflib

        if (meant := MEANT.get(word.lower())) and meant.startswith(self.prefix):
            return meant
        known = {name.rpartition(" ")[2]: name for name in self._names()}
        known |= {name: self.prefix + name for name in self.list_commands(ctx)}
        near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=ALIKE)
        return known[near[0]] if near else None
