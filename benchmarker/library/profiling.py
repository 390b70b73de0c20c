"""`profile`: where the time and the memory of profiled steps go."""

from os import PathLike
from typing import Any, Literal, get_type_hints

import msgspec
import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.files.toml import assigned, refusal
from benchmarker.library.profiles.gemms import Gemms
from benchmarker.library.profiles.ranks import Ranks
from benchmarker.library.profiles.scopes import Scopes
from benchmarker.library.profiles.statistics import Kernels, Ops
from benchmarker.library.profiles.timeline import CriticalPath, Idle, Memory
from benchmarker.library.profiles.view import Profiled
from benchmarker.library.results import paths

View = Literal["kernels", "ops", "scopes", "gemms", "idle", "path", "memory", "ranks"]
_Options = Kernels | Ops | Scopes | Gemms | Idle | CriticalPath | Memory | Ranks
_VIEWS: dict[View, type[_Options]] = {
    "kernels": Kernels,
    "ops": Ops,
    "scopes": Scopes,
    "gemms": Gemms,
    "idle": Idle,
    "path": CriticalPath,
    "memory": Memory,
    "ranks": Ranks,
}


def profile(*results: str | PathLike[str], view: View = "kernels", **options: Any) -> Profiled:
    """Show where the time and memory of profiled steps go, as the command `profile VIEW` does.

    A result is a record of a profiled trial, an event table, a profiler's trace file, or a folder with one of these;
    `scopes` and `ranks` take several. Two results of `kernels`, `ops` or `scopes` give their difference. The `options`
    are those of the command, as `by="scope"`, `name="gemm"` or `step=0`; one that is None has its default. Frames have
    times in ns and sizes in bytes. Raises `UserError` if a result has no profile, or if the view has no such option.
    """
    if view not in _VIEWS:
        raise UserError(f"no view is named {view!r}; there are: {', '.join(_VIEWS)}")
    return _options(view, options).of(paths(results))


def _options(view: View, given: dict[str, Any]) -> _Options:
    """Return the options of a view; raises `UserError` that names one that it does not have, or a wrong value."""
    kind = _VIEWS[view]
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for name, value in given.items():
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__) or "no options"
            raise UserError(f"the view {view} has no option {name!r}; it has {known}")
        if value is None:
            continue
        try:
            plain = value.item() if isinstance(value, np.generic) else value
            values[name] = msgspec.convert(plain, hints[name], strict=False)
        except msgspec.ValidationError as error:
            raise UserError(f"{assigned(name, value)}: {refusal(str(error), hints[name])}") from None
    return kind(**values)
