"""Code of the user: a Python file or module whose functions and classes are cases of one problem.

`code` reads what such a file consists of, and `arguments` takes the arrays out of what its functions take and return.
`workload` says what results are held to, and `protection` looks for what fools a clock. `example` is a file to start
from. `values` has functions that are given as values. The other modules run the functions in each framework.
"""

import importlib
import importlib.util
import math
import random
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import FUNCTION, PRECISIONS, Cost, Data, Mode, Problem, Source, UserError, Work, hookimpl
from benchmarker_problems.own import arguments
from benchmarker_problems.own.code import GIVEN, ITEM_SIZE, SEED, Code, PythonFile, read
from benchmarker_problems.own.example import FRAMEWORKS, SOFTMAX


class Foreign(Problem):
    """A function or model of which only the process that runs it knows the work and the right results."""

    any_result: ClassVar[bool] = False
    """Whether results need not be arrays, because whoever calls the function checks them."""

    @property
    @abstractmethod
    def measured(self) -> str:
        """The name of the function or model."""

    @property
    def held_to(self) -> str | None:
        """The function that its results are held to; None if there is no other."""
        return None

    @property
    def code_files(self) -> frozenset[str]:
        """The names of files that code of the user has."""
        return frozenset()

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Raise `UserError`: only a process that runs the code knows the work of a step."""
        raise UserError(f"the work of {self.measured} is not known before it runs")

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return nothing: the work is not known here."""
        return {}

    def small(self) -> Self:
        """Return the same size: unknown code may not work at another, and is checked as it is timed."""
        return self

    def helper(self, name: str, precision: str) -> Any:
        """Return `flops`, `bytes`, `samples` or `tokens` of a step, or the `bound` of its error; None if unknown."""
        return None


@dataclass(frozen=True)
class Own(Foreign):
    """A function or class of a file; `code` is what the file has, read without running it."""

    cost_formula = "flops, bytes and samples as the file defines them; otherwise FLOPs as the framework counts them"
    cache = "rotate"
    code: ClassVar[Code]
    function: str

    @property
    def measured(self) -> str:
        """The function."""
        return self.function

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the function, the only part but for the optimizer."""
        return {self.function: 1, **({"optimizer": 1} if mode == "training" else {})}

    def refuse(self, mode: Mode) -> None:
        """Raise `UserError` for training of anything but a class that has a loss."""
        if mode == "training" and self.function not in self.code.trained:
            raise UserError(f"{self.code.name}:{self.function} has no method `loss`, which training needs")

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Call `inputs` once for each set, with seeds of its own, and take its arrays to the host."""
        return arguments.taken(self.code.name, [self._arguments(rng) for _ in range(batches)], precision)

    @property
    def module(self) -> ModuleType | SimpleNamespace:
        """The file, imported into this process."""
        return imported(self.code)

    @property
    def code_files(self) -> frozenset[str]:
        """The names of files that code of the user has."""
        return frozenset({str(self.code.path)})

    def options_of(self, function: str) -> dict[str, Any]:
        """Return the options that a helper takes, or the `__init__` of a class, by name."""
        parameters = {**self.code.functions, **self.code.helpers}[function]
        return {each.name: getattr(self, each.name) for each in parameters if each.name not in GIVEN}

    def helper(self, name: str, precision: str) -> Any:
        """Return what a helper such as `flops` says of these options; None if the file does not have it."""
        if name not in self.code.helpers:
            return None
        takes_size = any(each.name == ITEM_SIZE for each in self.code.helpers[name])
        size = {ITEM_SIZE: PRECISIONS[precision].parameter_bytes} if takes_size else {}
        value = getattr(self.module, name)(**self.options_of(name), **size)
        if value is not None and not (isinstance(value, int | float | np.number) and 0 <= float(value) < math.inf):
            raise UserError(f"{self.code.name}: {name} returned {value!r}, which is not a number from 0")
        return value

    def made(self, function: str, **given: Callable[[], Any]) -> Callable[..., Any]:
        """Return a function of the file, or an object of a class with its options, and what else its `__init__` takes.

        What may be `given` is made if it is taken.
        """
        defined: Callable[..., Any] = getattr(self.module, function)
        if function not in self.code.classes:
            return defined
        taken = {each.name for each in self.code.functions[function]}
        more = {name: make() for name, make in given.items() if name in taken}
        made: Callable[..., Any] = defined(**self.options_of(function), **more)
        return made

    @property
    def held_to(self) -> str | None:
        """The function that the others are held to, `reference` or the first; None if this is the first itself."""
        if "reference" in self.code.helpers:
            return "reference"
        first = next(iter(self.code.functions))
        return first if first != self.function else None

    def _arguments(self, rng: np.random.Generator) -> Any:
        if "inputs" not in self.code.helpers:
            return ()
        seed = seeded(rng)
        takes_seed = any(each.name == SEED for each in self.code.helpers["inputs"])
        made = self.module.inputs(**self.options_of("inputs"), **({SEED: seed} if takes_seed else {}))
        if made is None:
            raise UserError(f"{self.code.name}: inputs returned None; return the arguments of the functions")
        return made


def seeded(rng: np.random.Generator) -> int:
    """Seed every generator of random numbers that a function of the user may use; returns the seed."""
    seed = int(rng.integers(2**31))
    np.random.seed(seed)
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
    return seed


def imported(code: PythonFile) -> ModuleType:
    """Import a file, with its folder on the path, or the module of this name; each content once."""
    if not code.name.endswith(".py"):
        is_package = code.path.name == "__init__.py"
        sys.path.append(str(code.path.parents[code.name.count(".") + is_package]))
        return importlib.import_module(code.name)
    packages: list[str] = []
    folder = code.path.parent
    while (folder / "__init__.py").is_file():
        packages.insert(0, folder.name)
        folder = folder.parent
    name = ".".join([*packages, f"own_{code.path.stem}_{code.sha256}".replace(".", "_")])
    if name in sys.modules:
        return sys.modules[name]
    sys.path[:0] = dict.fromkeys([str(code.path.parent), str(folder)])
    spec = importlib.util.spec_from_file_location(name, code.path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@hookimpl
def define_problem(name: str, path: Path) -> type[Problem]:
    """Return the problem of a file: which of its functions, and the options that it takes."""
    return problem_of(read(name, path), Own)


@hookimpl
def lend_functions(
    functions: Mapping[str, Any], helpers: Mapping[str, Any], framework: str | None, any_result: bool
) -> AbstractContextManager[type[Problem]]:
    """Return the context of a problem of functions that are given as values."""
    from benchmarker_problems.own.values import lent

    return lent(functions, helpers, framework, any_result=any_result)


def problem_of(code: Code, base: type[Own], **attributes: Any) -> type[Problem]:
    """Return the class with the options of some code."""
    several = tuple(code.functions)
    fields: list[Any] = [
        (FUNCTION, Annotated[Literal[several], Meta(description="what of the file is measured")], several[0])
    ]
    for option, default in code.options.items():
        if option in Own.__annotations__ or hasattr(Own, option):
            raise UserError(f"{code.name} has a parameter {option!r}, which cannot be an option; rename the parameter")
        fields.append(
            (option, Annotated[type(default), Meta(description=f"as {code.name} takes it")], field(default=default))
        )
    namespace = {
        "summary": code.summary or f"functions of {code.name}",
        "code": code,
        "frameworks": code.frameworks,
        "source": Source(code.name, code.sha256),
        **attributes,
    }
    return make_dataclass("Own", fields, bases=(base,), frozen=True, namespace=namespace)


@hookimpl
def write_example(name: str, framework: str) -> str | None:
    """Return the content of a file to start from; None if there is none in this framework."""
    words = FRAMEWORKS.get(framework)
    return SOFTMAX.format(name=name, **words) if words else None
