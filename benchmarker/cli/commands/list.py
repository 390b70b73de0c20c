"""`benchmarker list`."""

from __future__ import annotations

import click

from benchmarker.cli.display.output import json_option, print_json, print_table
from benchmarker.hooks import registry

PLURALS = {
    "frameworks": "framework",
    "problems": "problem",
    "workloads": "workload",
    "meters": "meter",
    "metrics": "metric",
}


@click.command("list")
@click.argument("kind", type=click.Choice(list(PLURALS)), required=False)
@json_option
def command(kind: str | None, as_json: bool) -> None:
    """List the registered plugins, the distribution that provides each, and whether it can be used here.

    No framework is imported.
    """
    plugins = list(registry.registered(PLURALS[kind] if kind else None).values())
    reasons = [registry.trouble(plugin) for plugin in plugins]
    if as_json:
        print_json(
            [
                {
                    "kind": plugin.kind,
                    "name": plugin.name,
                    "distribution": plugin.distribution,
                    "version": plugin.version,
                    "usable": reason is None,
                    "reason": reason,
                }
                for plugin, reason in zip(plugins, reasons, strict=True)
            ]
        )
    elif not plugins:
        click.echo(f"no {kind} are registered")
    else:
        print_table(
            ["kind", "name", "distribution", "usable"],
            [
                [plugin.kind, plugin.name, f"{plugin.distribution} {plugin.version}", reason or "yes"]
                for plugin, reason in zip(plugins, reasons, strict=True)
            ],
        )
