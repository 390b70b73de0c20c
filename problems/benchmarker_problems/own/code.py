"""What a Python file or module has to measure, read without running it.

A file is plain Python that knows nothing of this program:

    def inputs(n=1024): ...     the arguments of every function; its defaults are options
    def reference(x): ...       optional: what the others are held to
    def naive(x): ...           every other public function or class that is defined here is measured
    class Layer: ...            built with those options that its `__init__` takes, then called

`flops`, `bytes` and `samples` of a step, and the largest relative error that is right, `bound`, are optional functions
of options, too; what takes `itemsize` gets the bytes of a number in the precision. `__all__`, where there is one, says
what is public.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from benchmarker import UserError

HELPERS = ("inputs", "reference", "flops", "bytes", "samples", "bound")
"""Functions that say how the others are measured."""
SEED = "seed"
"""The parameter of `inputs` that is no option: each set of inputs has a seed of its own."""
ITEM_SIZE = "itemsize"
"""The parameter of other helpers that is no option: the bytes of a number in the precision of the case."""
GIVEN = (SEED, ITEM_SIZE)
FRAMEWORKS = {"torch": ("torch", "triton"), "jax": ("jax", "flax")}
"""The modules whose import shows for which framework a file is; with neither, it is measured as NumPy is."""
_FOLDED = (ast.Expression, ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
_Function = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; `default` is None if it has none."""

    name: str
    default: bool | int | float | str | None


@dataclass(frozen=True)
class Code:
    """A file: its name as the user wrote it, and what is defined in it.

    `functions` are those that are measured, with the parameters of a class's `__init__`; `helpers` are the others that
    have a meaning, with their parameters.
    """

    name: str
    path: Path
    summary: str
    frameworks: tuple[str, ...]
    functions: Mapping[str, tuple[Parameter, ...]]
    helpers: Mapping[str, tuple[Parameter, ...]]
    classes: frozenset[str]
    trained: frozenset[str]
    """Classes that have a method `loss`."""
    options: Mapping[str, bool | int | float | str]
    sha256: str


def read(name: str, path: Path) -> Code:
    """Read a file by its syntax; raises `UserError` if nothing in it can be measured, in one line that says where."""
    content = path.read_bytes()
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        raise UserError(f"{name}:{error.lineno}: {error.msg}") from error
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    public = _public(tree)
    functions = {
        function: tuple(_parameters(node, defined))
        for function, node in defined.items()
        if function not in HELPERS and (function in public if public else not function.startswith("_"))
    }
    if not functions:
        raise UserError(f"{name} defines no public function or class to measure; `benchmarker new` writes an example")
    helpers = {helper: tuple(_parameters(defined[helper], defined)) for helper in HELPERS if helper in defined}
    classes = {function: node for function in functions if isinstance(node := defined[function], ast.ClassDef)}
    needing = [
        function
        for function in functions
        if "inputs" not in helpers and function not in classes and _takes(defined[function])
    ]
    if needing:
        raise UserError(
            f"{name} has no `inputs`, but {needing[0]} takes arguments; define inputs(...), which returns them"
        )
    return Code(
        name=name,
        path=path,
        summary=(ast.get_docstring(tree) or "").partition("\n")[0],
        frameworks=_frameworks(tree),
        functions=functions,
        helpers=helpers,
        classes=frozenset(classes),
        trained=frozenset(function for function, node in classes.items() if _method(node, "loss", defined)),
        options=_options(name, functions, helpers, classes),
        sha256=sha256(content).hexdigest(),
    )


def _options(
    name: str,
    functions: Mapping[str, tuple[Parameter, ...]],
    helpers: Mapping[str, tuple[Parameter, ...]],
    classes: Mapping[str, ast.ClassDef],
) -> dict[str, bool | int | float | str]:
    """Return the options with their defaults: the parameters of `inputs` and of the classes."""
    taken = {"inputs": helpers.get("inputs", ()), **{function: functions[function] for function in classes}}
    options: dict[str, bool | int | float | str] = {}
    for owner, parameters in taken.items():
        for parameter in parameters:
            if parameter.name in GIVEN or parameter.default is None:
                continue
            if options.setdefault(parameter.name, parameter.default) != parameter.default:
                raise UserError(f"{name}: {parameter.name} has two defaults; give it the same one in {owner}")
    for owner, parameters in {**taken, **helpers}.items():
        for parameter in parameters:
            if owner != "reference" and parameter.name not in (*GIVEN, *options):
                raise UserError(
                    f"{name}: {owner} takes {parameter.name}, which has no default; give it a number, a text or a "
                    f"Boolean, as in {parameter.name}=1024"
                )
    return options


def _public(tree: ast.Module) -> set[str]:
    """Return the names in `__all__`; none if there is no such list."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def _parameters(node: _Function, defined: Mapping[str, _Function]) -> Iterator[Parameter]:
    """Yield the parameters of a function, or of the `__init__` of a class."""
    function = _method(node, "__init__", defined) if isinstance(node, ast.ClassDef) else node
    if function is None:
        return
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    several = [*zip([*positional, *arguments.kwonlyargs], defaults, strict=True)]
    for argument, default in several[isinstance(node, ast.ClassDef) :]:
        yield Parameter(argument.arg, None if default is None else _value(default))


def _value(node: ast.expr) -> bool | int | float | str | None:
    """Return the value of a default that is a number, a text or a Boolean, such as `2**12`; None for any other."""
    expression = ast.Expression(node)
    if not all(isinstance(part, _FOLDED) for part in ast.walk(expression)):
        return None
    try:
        value = eval(compile(expression, "default", "eval"), {"__builtins__": {}})  # noqa: S307 - constants alone
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _takes(node: _Function) -> bool:
    """Whether a function has parameters without a default."""
    assert isinstance(node, ast.FunctionDef)
    return len(node.args.posonlyargs) + len(node.args.args) > len(node.args.defaults)


def _method(node: ast.ClassDef, name: str, defined: Mapping[str, _Function]) -> ast.FunctionDef | None:
    """Return a method of a class, its own or that of a base class in the same file; None if neither has it."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    bases = (defined.get(base.id) for base in node.bases if isinstance(base, ast.Name))
    methods = (_method(base, name, defined) for base in bases if isinstance(base, ast.ClassDef) and base is not node)
    return next(filter(None, methods), None)


def _frameworks(tree: ast.Module) -> tuple[str, ...]:
    """Return the frameworks that a file imports anywhere."""
    tops: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            tops |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            tops.add(node.module.partition(".")[0])
    return tuple(name for name, modules in FRAMEWORKS.items() if tops.intersection(modules)) or ("numpy",)
