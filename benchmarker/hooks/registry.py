"""What is registered, under which address, and loading just what is asked for."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from benchmarker.api.errors import UserError
from benchmarker.hooks import specs

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "benchmarker"
KINDS: dict[str, tuple[str, ...]] = {
    "framework": ("describe_framework", "make_framework"),
    "problem": ("make_problem",),
    "workload": ("describe_workload", "build_workload"),
    "meter": ("make_meter",),
    "metric": ("derive_metrics",),
}
"""Kinds of plugin, and the hooks that each implements."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One registered plugin: its address, the module it stands in, and the distribution that brought it."""

    address: str
    module: str
    distribution: str
    version: str

    @property
    def kind(self) -> str:
        """First word of the address."""
        return self.address.partition(".")[0]

    @property
    def name(self) -> str:
        """The address after its kind."""
        return self.address.partition(".")[2]


def registered(kind: str | None = None) -> dict[str, Plugin]:
    """All plugins by address, sorted; of one kind where that is given.

    Raises `UserError` where two distributions claim one address, or where an address is of no known kind.
    """
    plugins: dict[str, Plugin] = {}
    for entry_point in metadata.entry_points(group=GROUP):
        distribution = entry_point.dist
        plugin = Plugin(
            address=entry_point.name,
            module=entry_point.value,
            distribution=distribution.name if distribution else "unknown",
            version=distribution.version if distribution else "unknown",
        )
        if plugin.kind not in KINDS or not plugin.name or (plugin.kind == "workload" and "." not in plugin.name):
            raise UserError(
                f"{plugin.distribution} registers {plugin.address!r}, which is no address; "
                f"addresses are framework.NAME, problem.NAME, workload.PROBLEM.FRAMEWORK, meter.NAME, metric.NAME"
            )
        if ":" in plugin.module:
            raise UserError(
                f"{plugin.distribution} registers {plugin.address} as {plugin.module}; name the module alone"
            )
        other = plugins.setdefault(plugin.address, plugin)
        if other != plugin:
            raise UserError(
                f"two distributions register {plugin.address}: {other.distribution} and {plugin.distribution}; "
                f"uninstall one of them"
            )
    return {address: plugins[address] for address in sorted(plugins) if kind in (None, plugins[address].kind)}


def find(address: str) -> Plugin:
    """The plugin at `address`; raises `UserError` that names the nearest ones where there is none."""
    kind, _, name = address.partition(".")
    known = [plugin.name for plugin in registered(kind).values()]
    if name in known:
        return registered(kind)[address]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise UserError(f"no {kind} is named {name!r}; {hint}")


def implementing(problem: str) -> list[str]:
    """The frameworks that have an implementation of a problem."""
    names = (plugin.name.rpartition(".") for plugin in registered("workload").values())
    return [framework for of, _, framework in names if of == problem]


def load(addresses: Iterable[str]) -> pluggy.PluginManager:
    """Import the plugins at `addresses`, and no others, and give their hooks.

    Raises `UserError` where an address is unknown, or where its module or a library that it needs cannot be imported.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(specs)
    for address in addresses:
        plugin = find(address)
        try:
            module = importlib.import_module(plugin.module)
        except ModuleNotFoundError as error:
            raise UserError(_missing(plugin, error.name or str(error))) from error
        except ImportError as error:
            raise UserError(f"{address} cannot be imported: {error}") from error
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{address} cannot be imported: {text}") from error
        try:
            manager.register(module, name=address)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise UserError(f"{address}: {' '.join(str(error).split())}") from error
        implemented = {caller.name for caller in manager.get_hookcallers(module) or []}
        if lacking := [hook for hook in KINDS[plugin.kind] if hook not in implemented]:
            raise UserError(f"{address} does not implement the hook {lacking[0]}")
    return manager


def trouble(plugin: Plugin) -> str | None:
    """Why a plugin cannot be used, or None; found by reading its imports, without importing anything."""
    source = _source(plugin.module)
    if source is None:
        return _missing(plugin, plugin.module)
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        return f"{plugin.address} cannot be read: {error}"
    guarded = (each for node in tree.body if isinstance(node, ast.With) for each in node.body)
    for node in (*tree.body, *guarded):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return _missing(plugin, name)
    return None


def _missing(plugin: Plugin, module: str) -> str:
    """One line that says which module a plugin lacks and, as far as can be known, what installs it."""
    top = module.partition(".")[0]
    text = f"{plugin.address} needs the module {module!r}"
    if top == plugin.module.partition(".")[0]:
        return f"{text}; reinstall {plugin.distribution}"
    if importlib.util.find_spec(top):
        return f"{text}, which the installed {top} does not have; another version may"
    try:
        requirements = metadata.requires(plugin.distribution) or []
    except metadata.PackageNotFoundError:
        requirements = []
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([^'\"]+)", requirement)
        if name and extra and name.group().lower() == top.lower():
            return f"{text}; pip install '{plugin.distribution}[{extra.group(1)}]'"
    return f"{text}; install the library that has it"


def _source(module: str) -> Path | None:
    """The file of a module, found without importing it or the packages that it stands in."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    for folder in spec.submodule_search_locations or []:
        base = Path(folder, *rest)
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None
