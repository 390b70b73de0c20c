"""`benchmarker list`."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.types import Choice
from benchmarker.display.result import Text
from benchmarker.formatting import one_line
from benchmarker.hooks import registry
from benchmarker.hooks.registry import Plugin
from benchmarker.machine.perf_events import COUNTERS, available
from benchmarker.power.sampler import MeterProbe
from benchmarker.tables.table import Table

PLURALS = {
    "frameworks": "framework",
    "problems": "problem",
    "sources": "source",
    "libraries": "library",
    "workloads": "workload",
    "meters": "meter",
    "metrics": "metric",
    "launchers": "launcher",
}


@click.command("list")
@click.argument("kind", type=Choice([*PLURALS, "counters", "models"]), metavar="[KIND]", required=False)
@click.option("--problem", metavar="LIBRARY", help="The library whose models `list models` lists.")
@output_options()
def command(kind: str | None, problem: str | None) -> Output:
    """List the registered plugins, the distribution that provides each, and whether it is available here.

    KIND is frameworks, problems, sources, libraries, workloads, meters, metrics or launchers; by default all.
    `list counters` lists what `run --counters` can count, and tries each of them here. `list models --problem=LIBRARY`
    lists the models of a library, which another process imports.
    No framework is imported. A meter is queried, as by `power`, only by `list meters`.
    """
    if kind == "models":
        return _models(problem)
    if problem:
        raise UserError(f"--problem={problem} is for `benchmarker list models`; leave it out")
    if kind == "counters":
        return _counters()
    plugins = list(registry.registered(PLURALS[kind] if kind else None).values())
    probes = _queried(plugins) if kind == "meters" else {}
    states = [(plugin, *_state(plugin, probes)) for plugin in plugins]
    data = [
        {
            "kind": plugin.kind,
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "available": available,
            "reason": reason,
        }
        for plugin, available, reason in states
    ]
    if not plugins:
        return Output([f"no {kind} are registered"], data)
    words = {True: "yes", False: "no: {}", None: "{}"}
    rows = [
        [plugin.kind, plugin.name, f"{plugin.distribution} {plugin.version}", words[available].format(reason)]
        for plugin, available, reason in states
    ]
    return Output([Table.of(["kind", "name", "distribution", "available"], rows, drop=["distribution"])], data)


def _counters() -> Output:
    """Return what can be counted, in which unit, and whether it can be here; why not, in a line for each reason."""
    reasons = available()
    data = [
        {"name": name, "unit": event.unit, "meaning": event.meaning, "available": not reasons[name]}
        | {"reason": reasons[name] or None}
        for name, event in COUNTERS.items()
    ]
    rows = [[name, each.unit, each.meaning, "no" if reasons[name] else "yes"] for name, each in COUNTERS.items()]
    without = {reason: [name for name in reasons if reasons[name] == reason] for reason in reasons.values() if reason}
    notes = [Text(f"{', '.join(names)}: {reason}", "  ") for reason, names in without.items()]
    return Output([Table.of(["counter", "unit", "what is counted", "available"], rows), *notes], data)


_NAMES = "import importlib, json, sys; print(json.dumps(importlib.import_module(sys.argv[1]).names()))"
"""A program that prints the names of the models of a library, as its implementation tells them."""


def _models(library: str | None) -> Output:
    """Return the models of a library; raises `UserError` if it is none, or cannot be imported."""
    libraries = {plugin.name: plugin for plugin in registry.registered("library").values()}
    if library not in libraries:
        raise UserError(f"list models needs a library: --problem={' or --problem='.join(libraries)}")
    if reason := registry.trouble(libraries[library]):
        raise UserError(reason)
    implementation = next(each for each in registry.implementations(libraries[library]) if not registry.trouble(each))
    with working(f"importing {library}"):
        words = [sys.executable, "-c", _NAMES, implementation.module]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{library} cannot be imported: {one_line(done.stderr.strip().rpartition(chr(10))[2])}")
    names: list[str] = json.loads(done.stdout)
    return Output(["\n".join(names)], names)


def _queried(meters: Sequence[Plugin]) -> Mapping[str, MeterProbe]:
    """Return what each meter reads here, or why it reads nothing."""
    from benchmarker.power import samplers  # no other list needs it

    with working("querying the meters"):
        return samplers.probe([meter.name for meter in meters], None, {})


def _state(plugin: Plugin, probes: Mapping[str, MeterProbe]) -> tuple[bool | None, str | None]:
    """Return whether a plugin is available, and why not; None and the reason if that was not determined."""
    reason = probes[plugin.name].trouble if plugin.name in probes else registry.trouble(plugin)
    if reason is None and plugin.kind == "meter" and not probes:
        return None, "not queried; `benchmarker list meters` does"
    return reason is None, reason
