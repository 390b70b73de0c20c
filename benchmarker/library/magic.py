"""The cell magic `%%measure` of IPython, which `%load_ext benchmarker` defines. IPython itself is not imported."""

import ast
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.library.functions import FunctionResults, measure

CELL = "cell"
"""Name of the function that a cell becomes."""
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
"""Types of arrays, the shortest first, and the precisions of that name."""
_FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy")


def load_ipython_extension(shell: Any) -> None:
    """Define the magic in a shell of IPython; called by `%load_ext benchmarker`."""

    def run(line: str, cell: str) -> FunctionResults:
        """Measure what the cell computes: `%%measure [--option=value ...] [setup]`."""
        return measured_cell(line, cell, shell.user_ns)

    shell.register_magic_function(run, "cell", "measure")


def measured_cell(line: str, cell: str, namespace: Mapping[str, Any]) -> FunctionResults:
    """Measure a cell, whose value is that of its last line, in this process.

    `line` has options of `measure` as on the command line, then code that is run once before, as in `%%timeit`. Arrays
    of the `namespace` that the cell uses are copied, and are its inputs, whose shortest floating type is the precision;
    everything else it uses as it is. What cell and set-up assign stays among them. Raises `UserError` as `measure`
    does.
    """
    options, setup = _split(line)
    own = dict(namespace)
    exec(compile(setup, "<setup>", "exec"), own)  # noqa: S102 - it is the user's own code
    tree = _function(cell)
    arrays = {name: own[name] for name in _loaded(tree) if name in own and _is_array(own[name])}
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.args.args = [ast.arg(name) for name in arrays]
    exec(compile(ast.fix_missing_locations(tree), "<cell>", "exec"), own)  # noqa: S102 - as above
    types = {str(array.dtype).removeprefix("torch.") for array in arrays.values()}
    shortest = next((name for dtype, name in PRECISIONS.items() if dtype in types), "fp32")
    inputs = (lambda: arrays) if arrays else None
    return measure(own[CELL], inputs=inputs, fresh=False, **{"precision": shortest, **options})


def _split(line: str) -> tuple[dict[str, Any], str]:
    """Return the options at the beginning of a line, a list of each that has several values; and the rest."""
    options: dict[str, Any] = {}
    rest = line.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        (plain,) = shlex.split(word)
        name, _, value = plain[2:].partition("=")
        values = value.split(",") if value else [True]
        options[name.replace("-", "_")] = values if len(values) > 1 else values[0]
        rest = rest.lstrip()
    return options, rest


def _function(cell: str) -> ast.Module:
    """Return a module of one function, which returns what the last line of a cell computes or assigns."""
    tree = ast.parse(cell)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.Return(last.value)
    elif isinstance(last, ast.Assign | ast.AugAssign | ast.AnnAssign):
        target = last.targets[-1] if isinstance(last, ast.Assign) else last.target
        value = ast.parse(ast.unparse(target), mode="eval").body
        tree.body.append(ast.Return(value))
    else:
        raise UserError("the cell computes nothing that is checked; let its last line be a value")
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(name=CELL, args=arguments, body=tree.body, decorator_list=[])
    return ast.Module(body=[function], type_ignores=[])


def _loaded(tree: ast.AST) -> Iterator[str]:
    """Yield each name that is read, or changed in place, once."""
    nodes = [*ast.walk(tree)]
    changed = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    names = (
        node for node in nodes if isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Load) or node in changed)
    )
    yield from dict.fromkeys(node.id for node in names)


def _is_array(value: Any) -> bool:
    """Whether a value is an array or a tensor of a framework."""
    kind = type(value)
    is_array = hasattr(value, "shape") and hasattr(kind, "__array__") and not isinstance(value, np.generic)
    return is_array and kind.__module__.partition(".")[0] in _FRAMEWORKS
