"""What a Python file or module has to measure, read without running it.

A file is plain Python that knows nothing of this program:

    def inputs(n=1024): ...     the arguments of every function; its defaults are options
    def reference(x): ...       optional: what the others are held to
    def naive(x): ...           every other public function or class that is defined here is measured
    class Layer: ...            built with those options that its `__init__` takes, then called

`flops`, `bytes` and `samples` of a step, and the largest relative error that is right, `bound`, are optional functions
of options, too; what takes `itemsize` gets the bytes of a number in the precision. `__all__`, where there is one, says
what is public, and may name what syntax does not show to be a function, such as `jax.jit(naive)`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
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
RNGS = "rngs"
"""The parameter of a class that is no option: the generators of a module of flax.nnx."""
GIVEN = (SEED, ITEM_SIZE, RNGS)
FRAMEWORKS = {"torch": ("torch", "triton"), "jax": ("jax", "jaxlib", "flax")}
"""The modules whose import shows for which framework a file is; with neither, it is measured as NumPy is."""
_FOLDED = (ast.Expression, ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
_LARGEST_POWER = 64
"""Largest exponent or shift in a default."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; `default` is None if it has none."""

    name: str
    default: bool | int | float | str | None


@dataclass(frozen=True)
class PythonFile:
    """A file or module of the user: its name as the user wrote it, and the digest of its content."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class Code(PythonFile):
    """What is defined in a file.

    `functions` are those that are measured, with the parameters of a class's `__init__`; `helpers` are the others that
    have a meaning, with their parameters.
    """

    summary: str
    frameworks: tuple[str, ...]
    functions: Mapping[str, tuple[Parameter, ...]]
    helpers: Mapping[str, tuple[Parameter, ...]]
    classes: frozenset[str]
    trained: frozenset[str]
    """Classes that have a method `loss`."""
    options: Mapping[str, bool | int | float | str]


def read(name: str, path: Path) -> Code:
    """Read a file by its syntax; raises `UserError` if nothing in it can be measured, in one line that says where."""
    content = path.read_bytes()
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        raise UserError(":".join([name, *([str(error.lineno)] if error.lineno else []), f" {error.msg}"])) from error
    defined = _defined(tree)
    public = _public(name, tree, defined)
    functions = {
        function: tuple(_parameters(defined[function], defined)) for function in public if function not in HELPERS
    }
    if not functions:
        raise UserError(f"{name} defines no public function or class to measure; `benchmarker new` writes an example")
    helpers = {helper: tuple(_parameters(defined[helper], defined)) for helper in HELPERS if helper in defined}
    for function in (*helpers, *functions):
        if trouble := _trouble(defined[function]):
            raise UserError(f"{name}: {function} {trouble}")
    classes = {function: node for function in functions if isinstance(node := defined[function], ast.ClassDef)}
    needing = [function for function in functions if "inputs" not in helpers and _takes(defined[function])]
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
        options=options_of(name, functions, helpers, classes),
        sha256=sha256(content).hexdigest(),
    )


def options_of(
    name: str,
    functions: Mapping[str, tuple[Parameter, ...]],
    helpers: Mapping[str, tuple[Parameter, ...]],
    classes: Iterable[str],
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


def _defined(tree: ast.Module) -> dict[str, _Function | None]:
    """Return the functions, lambdas and classes that a file defines; None for what else has a name in it."""
    defined: dict[str, _Function | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined[node.id] = None
        elif isinstance(node, ast.alias):
            defined[node.asname or node.name] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            defined |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    return defined


def _public(name: str, tree: ast.Module, defined: Mapping[str, _Function | None]) -> list[str]:
    """Return the names in `__all__`, or without it those of functions and classes that begin with no `_`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            try:
                public: list[str] = [str(each) for each in ast.literal_eval(node.value)]
            except (TypeError, ValueError):
                raise UserError(f"{name}:{node.lineno}: __all__ is no list of texts; write the names out") from None
            if absent := [each for each in public if each not in defined]:
                raise UserError(f"{name}:{node.lineno}: __all__ names {absent[0]}, which the file does not define")
            return list(dict.fromkeys(public))
    return [function for function, node in defined.items() if node and not function.startswith("_")]


def _trouble(node: _Function | None) -> str | None:
    """Return why a function or class cannot be measured, with the remedy, or None."""
    if isinstance(node, ast.AsyncFunctionDef):
        return "is `async def`; let a plain function run it, as in asyncio.run(...), and begin its own name with _"
    if isinstance(node, ast.FunctionDef) and _yields(node.body):
        return "is a generator, which computes nothing when it is called; return instead of yield"
    if isinstance(node, ast.ClassDef) and not node.bases and not _method(node, "__call__", {}):
        return "has no method `__call__`, which a step calls; add it, or begin its name with _"
    return None


def _yields(nodes: Iterable[ast.AST]) -> bool:
    """Whether a body yields, not counting the functions in it."""
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return any(
        isinstance(node, ast.Yield | ast.YieldFrom) or _yields(ast.iter_child_nodes(node))
        for node in nodes
        if not isinstance(node, nested)
    )


def _parameters(node: _Function | None, defined: Mapping[str, _Function | None]) -> Iterator[Parameter]:
    """Yield the parameters of a function, or of the `__init__` of a class; none if they cannot be read."""
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
    if not all(isinstance(part, _FOLDED) and not _is_huge(part) for part in ast.walk(expression)):
        return None
    try:
        value = eval(compile(expression, "default", "eval"), {"__builtins__": {}})  # noqa: S307 - constants alone
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _is_huge(node: ast.AST) -> bool:
    """Whether a power or a shift may take for ever to compute."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Pow | ast.LShift):
        return False
    power = node.right.value if isinstance(node.right, ast.Constant) else None
    return not isinstance(power, int | float) or power > _LARGEST_POWER


def _takes(node: _Function | None) -> bool:
    """Whether a function has parameters without a default."""
    if node is None or isinstance(node, ast.ClassDef):
        return False
    return len(node.args.posonlyargs) + len(node.args.args) > len(node.args.defaults)


def _method(node: ast.ClassDef, name: str, defined: Mapping[str, _Function | None]) -> ast.FunctionDef | None:
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
