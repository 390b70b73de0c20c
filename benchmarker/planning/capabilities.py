"""What the frameworks on this machine support; each is asked in a separate process, unless its answer was kept.

Starting a framework to ask it takes seconds, so an answer is kept in the user's cache for as long as nothing changes
that it may depend on: the installed distributions and their versions, the files of the plugins, Python, the host, its
devices and drivers, and the environment variables that the framework names. A file that is damaged, or a cache that
cannot be written, only means that the framework is asked.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from socket import gethostname

import msgspec
import platformdirs
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.framework import FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.files import atomic
from benchmarker.files.atomic import as_json
from benchmarker.files.locks import scratch
from benchmarker.hooks import registry
from benchmarker.machine import gpus
from benchmarker.planning.cases import GPUS, Ability
from benchmarker.version import __version__
from benchmarker.worker.launch import Environment, ending_text, run_worker
from benchmarker.worker.protocol import Described, Event, Refused, Task

TIMEOUT_S = 120.0
VARIABLE = "BENCHMARKER_CACHE"
_DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))
_DEVICES = Path("/dev")


def abilities(problem: str, frameworks: Iterable[str], environment: Environment) -> Mapping[str, Ability | UserError]:
    """Ask all frameworks at once; if one cannot be used, its value is the error that states why."""
    names = list(frameworks)
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        answers = pool.map(lambda name: _ask(problem, name, environment), names)
        return dict(zip(names, answers, strict=True))


def usable(problem: str, frameworks: Iterable[str], environment: Environment) -> Mapping[str, Ability]:
    """Ask all frameworks. Raises the `UserError` of the first that cannot be used."""
    usable_ones = {}
    for name, ability in abilities(problem, frameworks, environment).items():
        if isinstance(ability, UserError):
            raise ability
        usable_ones[name] = ability
    return usable_ones


def on_one_platform(
    problem: str, frameworks: Iterable[str], asked: str, environment: Environment
) -> tuple[str, list[str]]:
    """Return a platform for a problem, and the frameworks that have the problem there.

    `asked` is a platform; or `gpu` or `auto`, which is the first that a framework prefers to the CPU, or `auto` the CPU
    if there is none. A framework that cannot be used is among them, so that it is refused with its reason; so are all
    if none has the platform.
    """
    names = list(frameworks)
    platforms: dict[str, list[str]] = {}
    for name, ability in abilities(problem, names, environment).items():
        if not isinstance(ability, UserError):
            found = [device.platform for device in ability.info.devices]
            platforms[name] = [each for each in found if each in ability.support.choices.get("device", found)]
    preferred = [each for found in platforms.values() for each in found[:1] if each != "cpu"]
    chosen = asked
    if asked == "auto":
        chosen = next(iter(preferred), "cpu")
    elif asked == "gpu":
        chosen = next((each for each in preferred if each in GPUS), asked)
    return chosen, [name for name in names if chosen in platforms.get(name, [chosen])] or names


def _ask(problem: str, framework: str, environment: Environment) -> Ability | UserError:
    if kept := _read_kept(problem, framework, environment):
        return kept
    events: list[Event] = []
    task = Task(kind="describe", framework=framework, problem=problem)
    with scratch() as folder:
        log = folder / "log"
        ending = run_worker(task, environment, TIMEOUT_S, log, events.append)
        for event in events:
            if isinstance(event, Refused):
                return UserError(event.message)
            if isinstance(event, Described):
                assert event.support is not None
                ability = Ability(event.info, event.support)
                _keep(problem, framework, environment, ability)
                return ability
        return UserError(f"{framework} does not start: {ending_text(ending, log)}")


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer, and all that it depends on."""

    of: str
    variables: dict[str, str | None]
    info: FrameworkInfo
    support: Support


def _read_kept(problem: str, framework: str, environment: Environment) -> Ability | None:
    """Return what was kept of a framework's implementation of a problem; None if it may be different now."""
    kept = atomic.decode(_path(problem, framework, environment), _decode)
    if isinstance(kept, atomic.Fault) or kept.of != _depends_on(problem, framework):
        return None
    if kept.variables != _variables(kept.info):
        return None
    return Ability(kept.info, kept.support)


def _keep(problem: str, framework: str, environment: Environment, ability: Ability) -> None:
    """Keep an answer, if the cache can be written."""
    kept = _Kept(_depends_on(problem, framework), _variables(ability.info), ability.info, ability.support)
    path = _path(problem, framework, environment)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, as_json(kept))


def folder() -> Path:
    """Return the folder of what is kept: in the one that `BENCHMARKER_CACHE` names, or in the user's cache."""
    own = os.environ.get(VARIABLE)
    return (Path(own) if own else platformdirs.user_cache_path("benchmarker")) / "frameworks"


def _decode(content: bytes) -> _Kept:
    return msgspec.json.decode(content, type=_Kept)


def _path(problem: str, framework: str, environment: Environment) -> Path:
    """Return the file of an answer; each host, Python and choice of GPUs has its own."""
    asked = as_json([problem, framework, sorted(environment.items()), gethostname(), sys.prefix])
    return folder() / f"{hashlib.sha256(asked).hexdigest()[:16]}.json"


def _variables(info: FrameworkInfo) -> dict[str, str | None]:
    """Return the variables that the framework names, those that hide GPUs, and where libraries are looked for."""
    names = (*info.variables, *gpus.SHOWN_BY.values(), "LD_LIBRARY_PATH")
    return {name: os.environ.get(name) for name in names}


def _depends_on(problem: str, framework: str) -> str:
    """Return a digest of what an answer depends on, other than variables."""
    addresses = (f"framework.{framework}", f"problem.{problem}", f"workload.{problem}.{framework}")
    plugins = [plugin for address in addresses if (plugin := registry.known(address))]
    tops = {"benchmarker", *(plugin.module.partition(".")[0] for plugin in plugins)}
    drivers = [path.read_text() if path.exists() else None for path in _DRIVERS]
    devices = [path.name for name in ("nvidia*", "kfd", "accel*", "dri/*") for path in _DEVICES.glob(name)]
    parts = [
        __version__,
        sys.version,
        [str(plugin) for plugin in plugins],
        _distributions(tuple(sys.path)),
        [_files(top) for top in sorted(tops)],
        drivers,
        sorted(devices),
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


@cache
def _distributions(path: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return the folders of metadata on a path, whose names have the versions, and when they were written."""
    entries = []
    for place in path:
        with suppress(OSError):
            entries += [
                (entry.name, entry.stat().st_mtime_ns)
                for entry in os.scandir(place or ".")
                if entry.name.endswith((".dist-info", ".egg-info"))
            ]
    return sorted(entries)


@cache
def _files(top: str) -> list[tuple[str, int, int]]:
    """Return the Python files of a package or module, with their sizes and when they were written."""
    spec = importlib.util.find_spec(top)
    places = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    paths = [path for place in places for path in place.rglob("*.py")]
    if spec and spec.origin and not places:
        paths = [Path(spec.origin)]
    files = []
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            files.append((str(path), status.st_size, status.st_mtime_ns))
    return sorted(files)
