"""Functions that are given as values, such as those of a notebook, measured in the process that has them.

They are read from what Python knows of them, not from a file, and the process is afterwards as it was before.
"""

import copy
import dis
import inspect
import marshal
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from benchmarker import IN_PROCESS, Problem, UserError
from benchmarker_problems.own import Own, problem_of
from benchmarker_problems.own.code import FRAMEWORKS, Code, Parameter, options_of

CUDNN_SETTINGS = ("allow_tf32", "benchmark")
CUBLAS_SETTINGS = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
JAX_SETTINGS = ("jax_platforms", "jax_enable_x64", "jax_default_matmul_precision")


@dataclass(frozen=True)
class Given(Own):
    """A function that is given as a value; `module` has all of them."""

    module: ClassVar[SimpleNamespace]
    code_files: ClassVar[frozenset[str]]

    def made(self, function: str, **given: Callable[[], Any]) -> Callable[..., Any]:
        """Return the function, of a class an object, and of a module with weights a copy, which may be converted."""
        made = super().made(function, **given)
        tops = {kind.__module__.partition(".")[0] for kind in type(made).__mro__}
        return copy.deepcopy(made) if tops & {"torch", "flax"} and function not in self.code.classes else made

    def _arguments(self, rng: np.random.Generator) -> Any:
        try:
            return super()._arguments(rng)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"inputs failed: {type(error).__name__}: {' '.join(str(error).split())}") from error


@contextmanager
def lent(
    functions: Mapping[str, Any], helpers: Mapping[str, Any], framework: str | None, *, any_result: bool
) -> Iterator[type[Problem]]:
    """Give the problem of some functions; afterwards, random numbers and frameworks go on as they would have done."""
    values = {**functions, **helpers}
    code = _code(functions, helpers, framework)
    files = frozenset(found.co_filename for value in values.values() if (found := _code_object(value)))
    with _unchanged():
        module = SimpleNamespace(**values)
        yield problem_of(code, Given, module=module, code_files=files, any_result=any_result)


def _code(functions: Mapping[str, Any], helpers: Mapping[str, Any], framework: str | None) -> Code:
    """Return what there is to measure; raises `UserError` if a function cannot be."""
    for name, value in {**functions, **helpers}.items():
        if not callable(value):
            raise UserError(f"{name} is no function, but {value!r:.60}; give what returns it, as in lambda: ...")
        if inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value):
            raise UserError(f"{name} computes nothing when it is called; give a plain function that does")
        if name in functions and "inputs" not in helpers and not inspect.isclass(value) and _needs(value):
            raise UserError(f"{name} takes arguments; give inputs=, a function that returns them")
    classes = frozenset(name for name, value in functions.items() if inspect.isclass(value))
    taken = {name: tuple(_parameters(value)) for name, value in functions.items()}
    known = {name: tuple(_parameters(value)) for name, value in helpers.items()}
    return Code(
        name=IN_PROCESS,
        path=Path(IN_PROCESS),
        summary="functions of this process",
        frameworks=(framework,) if framework else (_framework(functions, helpers),),
        functions=taken,
        helpers=known,
        classes=classes,
        trained=frozenset(name for name, value in functions.items() if hasattr(value, "loss")),
        options=options_of(IN_PROCESS, taken, known, classes),
        sha256=sha256("\n".join(map(_text, (*functions.values(), *helpers.values()))).encode()).hexdigest(),
    )


def _signature(value: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, or of the `__init__` of a class; none if Python does not know them."""
    try:
        several = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in several if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def _parameters(value: Any) -> Iterator[Parameter]:
    for each in _signature(value):
        yield Parameter(each.name, each.default if isinstance(each.default, bool | int | float | str) else None)


def _needs(value: Any) -> bool:
    """Whether a function cannot be called without arguments."""
    return any(each.default is each.empty for each in _signature(value))


def _text(value: Any) -> str:
    """Return the source of a function, or what it is called if nothing has its source."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        code = _code_object(value)
        what = marshal.dumps(code).hex() if code else getattr(value, "__qualname__", "")
        return f"{type(value).__module__}.{type(value).__qualname__} {what}"


def _code_object(value: Any) -> CodeType | None:
    """Return the code of a function in Python, without what wraps it."""
    return getattr(inspect.unwrap(value), "__code__", None)


def _framework(functions: Mapping[str, Any], helpers: Mapping[str, Any]) -> str:
    """Return the framework that functions show by what they use, or else their helpers; NumPy if they show none."""
    used = {name: _used(value, {}) for name, value in functions.items()}
    every = sorted(frozenset().union(*used.values()))
    if len(every) > 1:
        words = ", ".join(f"{name} {' and '.join(sorted(of))}" for name, of in used.items() if of)
        raise UserError(
            f"functions of two frameworks: {words}; name one with framework=, or compare files with `benchmarker ab`"
        )
    by_helpers = sorted(frozenset().union(*(_used(value, {}) for value in helpers.values())))
    return next(iter(every or by_helpers), "numpy")


def _used(value: Any, seen: dict[int, Any], home: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the frameworks that a value is of, or that a function uses by the names in its code.

    Functions that it calls are looked into if they are of the same module, whose names are its `home`.
    """
    if id(value) in seen:
        return frozenset()
    seen[id(value)] = value
    if isinstance(value, dict | tuple | list):
        return frozenset().union(
            *(_used(each, seen, home) for each in (value.values() if isinstance(value, dict) else value))
        )
    named = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None) or ""
    kinds = (value if inspect.isclass(value) else type(value)).__mro__
    tops = {module.partition(".")[0] for module in (named, *(kind.__module__ for kind in kinds))}
    used = frozenset(name for name, modules in FRAMEWORKS.items() if tops.intersection(modules))
    code = _code_object(value) if callable(value) and not inspect.isclass(value) else None
    if used or code is None:
        return used
    inner: Any = inspect.unwrap(value)
    if home is not None and inner.__globals__ is not home:
        return used
    reached = [inner.__globals__[name] for name in _names(code) if name in inner.__globals__]
    for cell in inner.__closure__ or ():
        with suppress(ValueError):  # it is empty
            reached.append(cell.cell_contents)
    return used.union(*(_used(each, seen, inner.__globals__) for each in reached))


def _names(code: CodeType) -> Iterable[str]:
    """Yield the global names that some code loads, and the functions in it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@contextmanager
def _unchanged() -> Iterator[None]:
    """Put back what measuring changes in a process: generators of random numbers, and settings of frameworks."""
    torch: Any = sys.modules.get("torch")
    jax: Any = sys.modules.get("jax")
    with ExitStack() as stack:
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(random.setstate, random.getstate())
        if torch:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            if torch.cuda.is_initialized():
                stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
            for owner, names in ((cudnn, CUDNN_SETTINGS), (cublas, CUBLAS_SETTINGS)):
                for name in names:
                    stack.callback(setattr, owner, name, getattr(owner, name))
        for name in JAX_SETTINGS if jax else ():
            stack.callback(jax.config.update, name, getattr(jax.config, name))
        yield
