"""Arguments and results of functions that know nothing of this program: their arrays apart from everything around them.

Tuples, lists and dictionaries may be nested. Arrays of any framework become NumPy's on the host, named by their place;
everything else, such as a number or a string, stays as it is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarker import Data, UserError

TYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Types of arrays, and the precisions of that name."""
LONG = {"float64", "float32", "complex128", "complex64"}
"""Types in which frameworks create numbers if none is asked for: these follow the precision."""
OWN = ("numpy", "torch", "jax", "jaxlib")
"""Libraries that define the array types of the frameworks."""
WHOLE = "result"
"""Name of a result that is a single array."""


@dataclass(frozen=True)
class Place:
    """The place of an array among arguments, and its type; None if it follows the precision."""

    name: str
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Inputs(Data):
    """Sets of arguments: their arrays in `batches` by name, and all of them with a `Place` for each array."""

    template: Any = ()


def taken(name: str, sets: Iterable[Any], precision: str) -> Inputs:
    """Take the arrays out of sets of arguments of the file `name`, which must differ in their values alone.

    If all floating arrays have one of the types that frameworks choose by themselves, they follow the precision.
    Otherwise they keep their types, and the precision must be that of the shortest; raises `UserError` if it is not.
    """
    batches: list[Mapping[str, np.ndarray]] = []
    template: Any = None
    for arguments in sets:
        arrays: dict[str, np.ndarray] = {}
        types: dict[str, str] = {}
        several = arguments if isinstance(arguments, tuple | list | dict) else (arguments,)
        whole = _without_arrays(several, "", arrays, types)
        if template is not None and whole != template:
            raise UserError(f"{name}: inputs returns arguments of other kinds or types each time")
        if batches and (off := next((each for each in arrays if arrays[each].shape != batches[0][each].shape), None)):
            raise UserError(
                f"{name}: inputs returns arrays of other shapes each time, {batches[0][off].shape} and "
                f"{arrays[off].shape}; take the shape from an option"
            )
        template = whole
        batches.append(arrays)
    floats = {dtype for dtype in types.values() if dtype.startswith(("float", "bfloat", "complex"))}
    follows = floats <= LONG
    known = [TYPES[dtype] for dtype in TYPES if dtype in floats]
    if not follows and known and precision != known[-1]:
        raise UserError(
            f"{name}: inputs returns arrays of type {'/'.join(sorted(floats))}; use --precision={known[-1]}"
        )
    if follows:
        long = np.float64 if precision == "fp64" else np.float32
        batches = [{place: _converted(array, long) for place, array in arrays.items()} for arrays in batches]
    kept = _mapped(
        template, lambda place: Place(place.name, None if follows and place.dtype in floats else place.dtype)
    )
    return Inputs({}, tuple(batches), kept)


def placed(template: Any, put: Callable[[Place], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of a call, with what `put` returns for each place."""
    arguments = _mapped(template, put)
    return ((), arguments) if isinstance(arguments, dict) else (tuple(arguments), {})


def results(result: Any, kind: Any) -> dict[str, np.ndarray]:
    """Return the arrays and numbers of a result by their places, in float64 or complex128.

    Raises `RuntimeError` if one is neither of the framework's own `kind`, as what computes later may be, nor a number.
    """
    arrays: dict[str, np.ndarray] = {}
    for place, value in _leaves(result, ""):
        is_own = isinstance(value, kind) and type(value).__module__.partition(".")[0] in OWN
        if not is_own and not isinstance(value, bool | int | float | complex):
            if value is None:
                raise RuntimeError("a function returned None; return what it computes, which is checked")
            raise RuntimeError(f"a function returned {type(value).__name__}, which is not an array of its framework")
        on_host = _on_host(value)
        array = np.asarray(value) if on_host is None else on_host[0]
        arrays[place or WHOLE] = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return arrays


def _without_arrays(value: Any, place: str, arrays: dict[str, np.ndarray], types: dict[str, str]) -> Any:
    """Return a value with a `Place` for each of its arrays, which are added to `arrays`, and their types to `types`."""
    if isinstance(value, dict):
        return {key: _without_arrays(item, _below(place, key), arrays, types) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_without_arrays(item, _below(place, number), arrays, types) for number, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    array = _on_host(value)
    if array is None:
        return value
    arrays[place], types[place] = array
    return Place(place, array[1])


def _below(place: str, key: Any) -> str:
    return f"{place}.{key}" if place else str(key)


def _mapped(value: Any, change: Callable[[Place], Any]) -> Any:
    if isinstance(value, Place):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_mapped(item, change) for item in value)
    return value


def _leaves(value: Any, place: str) -> Iterable[tuple[str, Any]]:
    """Yield what is in nested tuples, lists and dictionaries, each with its place."""
    if isinstance(value, dict | tuple | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, _below(place, key))
    else:
        yield place, value


def _on_host(value: Any) -> tuple[np.ndarray, str] | None:
    """Return an array of any framework as NumPy's, and its type; None if it is none.

    NumPy has no types that are shorter than fp16, so that arrays of these are float32 on the host.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value), str(value.dtype)
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if not dtype or dtype.startswith("key<") or not hasattr(value, "__array__"):
        return None
    if hasattr(value, "detach"):
        tensor = value.detach()
        tensor = tensor.float() if dtype.startswith(("bfloat", "float8")) else tensor
        return tensor.cpu().numpy(), dtype
    array = np.asarray(value)
    return (array.astype(np.float32) if array.dtype.kind == "V" else array), dtype


def _converted(array: np.ndarray, long: type[np.floating]) -> np.ndarray:
    """Return an array of floating or complex numbers in float32 or float64; any other as it is."""
    kinds = {"f": np.dtype(long), "c": np.result_type(long, np.complex64)}
    return array.astype(kinds.get(array.dtype.kind, array.dtype), copy=False)
