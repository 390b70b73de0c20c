"""What a shell completes for arguments and options that take a name: plugins, suites, plan files.

Each function is one for click's `shell_complete`. None starts or imports a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from benchmarker.hooks import registry

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def plugins(kind: str) -> Complete:
    """Complete the name of a plugin of a kind."""
    return lambda _context, _param, incomplete: _beginning(incomplete, _plugins(kind))


def several(kind: str) -> Complete:
    """Complete the last of several names of plugins, separated by commas; those that are there are not repeated."""

    def complete(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given, comma, last = incomplete.rpartition(",")
        names = (name for name in _plugins(kind) if name not in given.split(","))
        return [CompletionItem(given + comma + item.value) for item in _beginning(last, names)]

    return complete


def suites(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a suite."""
    from benchmarker.planning.suites import names

    return _beginning(incomplete, names())


def plan_files(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the path of a plan: TOML files that begin like this, else a folder."""
    folder, _, beginning = incomplete.rpartition("/")
    folder += "/" if "/" in incomplete else ""
    try:
        names = sorted(path.name for path in Path(folder or ".").iterdir() if path.suffix == ".toml")
    except OSError:
        names = []
    items = [CompletionItem(folder + item.value) for item in _beginning(beginning, names)]
    return items or [CompletionItem(incomplete, type="dir")]


def suites_and_plan_files(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a suite, else the path of a plan."""
    return suites(context, param, incomplete) or plan_files(context, param, incomplete)


def _plugins(kind: str) -> list[str]:
    return [plugin.name for plugin in registry.registered(kind).values()]


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
