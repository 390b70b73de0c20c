"""The registry of plugins by address; it loads only the requested ones."""

import ast
import importlib
import importlib.util
import json
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pluggy

from benchmarker.api.errors import UserError
from benchmarker.api.problem import IN_PROCESS, Problem
from benchmarker.api.program import is_program
from benchmarker.formatting import nearest, one_line
from benchmarker.hooks import specs
from benchmarker.version import DISTRIBUTION


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Raise `UserError`, with the command that installs an extra, if a module that `what` needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "benchmarker").partition(".")[0] == "benchmarker":
            raise
        raise UserError(f"{what} needs the module '{error.name}'; {installing(extra)}") from error


def installing(extra: str, distribution: str = DISTRIBUTION) -> str:
    """Return the command that installs an extra: from the distribution's source, its file, or a registry.

    Metadata state where a distribution comes from unless it is a registry (PEP 610, `direct_url.json`).
    """
    try:
        stated = metadata.distribution(distribution).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return f"pip install '.[{extra}]' in the source of {distribution}"
    if stated is None:
        return f"pip install '{distribution}[{extra}]'"
    direct = json.loads(stated)
    if "dir_info" in direct:
        editable = "-e " if direct["dir_info"].get("editable") else ""
        path = unquote(urlsplit(direct["url"]).path)
        return f"pip install {editable}{shlex.quote(f'{path}[{extra}]')}"
    revision = direct.get("vcs_info")
    url = f"{revision['vcs']}+{direct['url']}@{revision['commit_id']}" if revision else direct["url"]
    return f"pip install '{distribution}[{extra}] @ {url}'"


GROUP = "benchmarker"
KINDS: dict[str, tuple[str, ...]] = {
    "framework": ("describe_framework", "make_framework"),
    "problem": ("define_problem",),
    "source": ("define_problem", "write_example"),
    "library": ("define_problem",),
    "workload": ("describe_workload", "build_workload"),
    "meter": ("make_meter",),
    "metric": ("derive_metrics",),
    "launcher": ("make_launcher",),
}
"""Kinds of plugin, and the hooks that each kind implements."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One registered plugin: its address, its module, and the distribution that registers it."""

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
        """The address without its kind."""
        return self.address.partition(".")[2]


def registered(kind: str | None = None) -> dict[str, Plugin]:
    """Return all plugins by address, sorted; only those of `kind` if it is given.

    Raises `UserError` if two distributions register the same address, or if an address has an unknown kind.
    """
    plugins = scan(tuple(sys.path))
    return {address: plugin for address, plugin in plugins.items() if kind in (None, plugin.kind)}


def known(address: str) -> Plugin | None:
    """Return the plugin at `address`, or None if there is none."""
    return scan(tuple(sys.path)).get(address) or _of_source(address)


def source_file(problem: str) -> Path | None:
    """Return the file that a problem is, such as `softmax.py` or the module `mypackage.layers`; None for a plugin."""
    if is_program(problem) or f"problem.{problem}" in scan(tuple(sys.path)):
        return None
    path = Path(problem)
    if not path.suffix or f"source.{path.suffix[1:]}" not in scan(tuple(sys.path)):
        *packages, module = problem.split(".")
        if not packages or not all(part.isidentifier() for part in (*packages, module)):
            return None
        here = Path(*packages, f"{module}.py")
        return _source(problem) or (here.absolute() if here.is_file() else None)
    return path.absolute() if path.is_file() else None


def _of_source(address: str) -> Plugin | None:
    """Return the plugin that makes a problem, or its workload, of a library, file or program named as a problem."""
    kind, _, name = address.partition(".")
    if kind not in ("problem", "workload"):
        return None
    problem, _, framework = name.rpartition(".") if kind == "workload" else (name, "", "")
    usual = Path("functions.py") if problem == IN_PROCESS else Path("any.program") if is_program(problem) else None
    file = usual or source_file(problem)
    plugin = scan(tuple(sys.path)).get(f"source{file.suffix}" if file else f"library.{problem}")
    return plugin and replace(plugin, address=address, module=".".join(filter(None, [plugin.module, framework])))


@cache
def scan(path: tuple[str, ...]) -> dict[str, Plugin]:
    """Return the plugins of all distributions on `path`, which is that of this process, by address, sorted.

    An entry point registers each, but for the implementations in a problem's own package: they are its modules that are
    named for a framework. Reading the metadata of all distributions takes tens of milliseconds: each path is read once.
    """
    plugins: dict[str, Plugin] = {}
    names: dict[metadata.Distribution | None, tuple[str, str]] = {None: ("unknown", "unknown")}
    for entry_point in metadata.entry_points(group=GROUP):
        distribution = entry_point.dist
        if distribution is not None and distribution not in names:
            names[distribution] = (distribution.name, distribution.version)
        name, version = names[distribution]
        plugin = Plugin(address=entry_point.name, module=entry_point.value, distribution=name, version=version)
        if plugin.kind not in KINDS or not plugin.name or (plugin.kind == "workload" and "." not in plugin.name):
            raise UserError(
                f"{plugin.distribution} registers {plugin.address!r}, which is not a valid address; addresses are "
                "framework.NAME, problem.NAME, source.SUFFIX, library.NAME, workload.PROBLEM.FRAMEWORK, "
                "meter.NAME, metric.NAME, launcher.NAME"
            )
        if ":" in plugin.module:
            raise UserError(
                f"{plugin.distribution} registers {plugin.address} as {plugin.module}; name only the module"
            )
        _add(plugins, plugin)
    frameworks = {plugin.name for plugin in plugins.values() if plugin.kind == "framework"}
    for plugin in [plugin for plugin in plugins.values() if plugin.kind == "problem"]:
        for framework in frameworks.intersection(_modules_in(plugin.module)):
            address, module = f"workload.{plugin.name}.{framework}", f"{plugin.module}.{framework}"
            _add(plugins, replace(plugin, address=address, module=module))
    return dict(sorted(plugins.items()))


def _add(plugins: dict[str, Plugin], plugin: Plugin) -> None:
    other = plugins.setdefault(plugin.address, plugin)
    if other != plugin:
        raise UserError(
            f"two distributions register {plugin.address}: {other.distribution} and {plugin.distribution}; "
            "uninstall one of them"
        )


def find(address: str) -> Plugin:
    """Return the plugin at `address`; raises `UserError` with the most similar names if there is none."""
    kind, _, name = address.partition(".")
    if plugin := known(address):
        return plugin
    if (kind == "problem" and "/" in name) or name.endswith(".py"):
        raise UserError(f"{name}: no such file")
    names = [plugin.name for plugin in registered(kind).values()]
    raise UserError(f"no {kind} is named {name!r}; {nearest(name, names)}")


def implementing(name: str) -> list[str]:
    """Return the frameworks that have an implementation of a problem; of a library or file, those that it is for."""
    if _of_source(f"problem.{name}"):
        return list(problem(name).frameworks or ())
    names = (plugin.name.rpartition(".") for plugin in registered("workload").values())
    return [framework for of, _, framework in names if of == name]


def available(name: str) -> list[str]:
    """Return the frameworks that implement a problem and are installed; all that implement it if none is."""
    known = implementing(name)
    return [framework for framework in known if not trouble(find(f"framework.{framework}"))] or known


def load(addresses: Iterable[str]) -> pluggy.PluginManager:
    """Import only the plugins at `addresses`, and return their hooks.

    Raises `UserError` if an address is unknown, if its module or a library that it needs cannot be imported, or if it
    does not implement the hooks of its kind.
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
            raise UserError(f"{address} cannot be imported: {one_line(str(error))}") from error
        except Exception as error:
            text = one_line(f"{type(error).__name__}: {error}")
            raise UserError(f"{address} cannot be imported: {text}") from error
        try:
            manager.register(module, name=address)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise UserError(f"{address}: {one_line(str(error))}") from error
        implemented = {caller.name for caller in manager.get_hookcallers(module) or []}
        if lacking := [hook for hook in KINDS[plugin.kind] if hook not in implemented]:
            raise UserError(f"{address} does not implement the hook {lacking[0]}")
    return manager


def problem(name: str) -> type[Problem]:
    """Return the class of a problem; raises `UserError` as `load` does."""
    defined: type[Problem] = load([f"problem.{name}"]).hook.define_problem(name=name, path=source_file(name))
    return defined


def lent(
    functions: Mapping[str, Any], helpers: Mapping[str, Any], framework: str | None, *, any_result: bool = False
) -> AbstractContextManager[type[Problem]]:
    """Return the context of a problem whose functions are values of this process; see `lend_functions`."""
    lend: Callable[..., AbstractContextManager[type[Problem]]] = load(["source.py"]).hook.lend_functions
    return lend(functions=functions, helpers=helpers, framework=framework, any_result=any_result)


def implementations(library: Plugin) -> list[Plugin]:
    """Return what implements the models of a library: the modules of its package that are named for a framework."""
    return [
        replace(library, address=f"workload.{library.name}.{name}", module=f"{library.module}.{name}")
        for name in _modules_in(library.module)
        if f"framework.{name}" in scan(tuple(sys.path))
    ]


def trouble(plugin: Plugin) -> str | None:
    """Return why a plugin cannot be used, or None; this parses its imports, and imports nothing but `find_library`.

    A library can be used if one of its implementations can.
    """
    if plugin.kind == "library":
        several = [trouble(each) for each in implementations(plugin)]
        return several[0] if all(several) else None
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
    if any(isinstance(node, ast.FunctionDef) and node.name == "find_library" for node in tree.body):
        missing: str | None = load([plugin.address]).hook.find_library()
        return missing and f"{plugin.address}: {missing}"
    return None


def _missing(plugin: Plugin, module: str) -> str:
    """Return one line that names the missing module and, if known, what installs it."""
    top = module.partition(".")[0]
    text = f"{plugin.address} needs the module {module!r}"
    if top == plugin.module.partition(".")[0]:
        return f"{text}; reinstall {plugin.distribution}"
    if importlib.util.find_spec(top):
        return f"{text}, which the installed {top} does not have; try another version"
    try:
        requirements = metadata.requires(plugin.distribution) or []
    except metadata.PackageNotFoundError:
        requirements = []
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([^'\"]+)", requirement)
        if name and extra and name.group().lower() == top.lower():
            return f"{text}; {installing(extra.group(1), plugin.distribution)}"
    return f"{text}; install the missing library"


def _source(module: str) -> Path | None:
    """Return the file of a module, without importing the module or the packages that contain it."""
    package, _, name = module.rpartition(".")
    if not package:
        spec = importlib.util.find_spec(module)
        return Path(spec.origin) if spec and spec.origin else None
    for folder in _folders(package):
        for file in (Path(folder, f"{name}.py"), Path(folder, name, "__init__.py")):
            if file.is_file():
                return file
    return None


def _modules_in(package: str) -> list[str]:
    """Return the names of the modules in a package, which a module has none of, without importing anything."""
    return [module.name for module in pkgutil.iter_modules(_folders(package))]


def _folders(package: str) -> list[str]:
    """Return the folders that hold the modules of a package, without importing it."""
    top, *rest = package.split(".")
    spec = importlib.util.find_spec(top)
    return [str(Path(folder, *rest)) for folder in (spec and spec.submodule_search_locations) or []]
