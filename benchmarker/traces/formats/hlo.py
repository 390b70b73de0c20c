"""XLA's HLO, as a profile contains it for each program: what an instruction does, its source, and its cost.

Field numbers are those of xla/service/hlo.proto and xla/xla_data.proto.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

from benchmarker.traces.formats.notation import Gemm, array, dtype, group, inputs
from benchmarker.traces.formats.wire import WireError, fields, integers, text

_NO_WORK = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "async-update"}
"""Opcodes that execute nothing."""
_PARTIAL = {"gather", "dynamic-slice", "scatter", "dynamic-update-slice"}
"""Opcodes that access only part of an operand; the shapes do not show which part."""
_CALLS = {"fusion", "call", "async-start"}
"""Opcodes whose called computations are their members."""
STARTS, DONE = ("-start", "send", "recv"), "-done"
"""How the opcodes end of the two instructions of an asynchronous operation: one begins it, the other waits for it."""
_DEEPEST, _MOST_MEMBERS = 16, 1 << 18
"""Fusions nest two or three deep and contain some hundreds of instructions; a file beyond these limits is damaged."""
_LARGEST_DIM = 1 << 40
"""A larger dimension, or an unknown one (which is negative), makes a size or cost NaN."""

_NAMES = {
    1: {30: "s1", 31: "u1"},
    2: {26: "s2", 27: "u2"},
    4: {21: "s4", 22: "u4", 32: "f4e2m1fn"},
    8: {1: "pred", 2: "s8", 6: "u8", 19: "f8e5m2", 20: "f8e4m3fn", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz"}
    | {25: "f8e4m3fnuz", 28: "f8e4m3", 29: "f8e3m4", 33: "f8e8m0fnu"},
    16: {3: "s16", 7: "u16", 10: "f16", 16: "bf16"},
    32: {4: "s32", 8: "u32", 11: "f32"},
    64: {5: "s64", 9: "u64", 12: "f64", 15: "c64"},
    128: {18: "c128"},
}
"""Names of xla.PrimitiveType (xla_data.proto) by their bits; tuples, tokens and opaque values have none."""
_TYPES = {number: (name, bits) for bits, names in _NAMES.items() for number, name in names.items()}


_MOST_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Shape:
    """An array's dimensions and type, or a tuple of shapes.

    `order` has the array's axes from the one with adjacent elements to the outermost; empty if that is not stored.
    """

    dimensions: tuple[int, ...] = ()
    bits: int = 0
    parts: tuple[Shape, ...] = ()
    dtype: str = ""
    order: tuple[int, ...] = ()

    def __str__(self) -> str:
        return array(self.dtype, self.dimensions) if self.dtype else group([str(part) for part in self.parts])

    @property
    def elements(self) -> float:
        """Number of elements in the array; NaN if a dimension is unknown."""
        return _product(self.dimensions)

    @property
    def bytes(self) -> float:
        """Size in memory, in bytes."""
        return -(-self.elements * self.bits // 8) + sum(part.bytes for part in self.parts)


class Dot(NamedTuple):
    """The axes of a matrix product's operands: those summed over, and those of the batch; the others are M and N."""

    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    left_batch: tuple[int, ...] = ()
    right_batch: tuple[int, ...] = ()


_NO_DOT = Dot()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One HLO instruction; `paths` are its scope paths in the program's source, its own first.

    `made_of` is the type of the op of TensorFlow that it was made of; JAX tells none.
    """

    name: str
    opcode: str
    id: int = 0
    shape: Shape = Shape()
    paths: tuple[str, ...] = ()
    made_of: str = ""
    source: str = ""
    target: str = ""
    config: str = ""
    operands: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    dot: Dot = _NO_DOT
    kernel_output_feature: int = -1


REWRITTEN = {"convolution": "/conv_general_dilated", "dot": "/dot_general"}
"""Products that XLA's CPU compiler may replace by others without a path, and how the path ends on what follows."""
_OPS_REWRITTEN = {"convolution": ("Conv", "DepthwiseConv"), "dot": ("BatchMatMul", "Einsum", "MatMul")}
"""How the types of the ops of TensorFlow begin that are such products; its paths end in any name."""


@dataclass(frozen=True)
class Program:
    """A compiled module: its instructions by name, and by the computation that contains them."""

    name: str
    id: int
    instructions: Mapping[str, Instruction]
    computations: Mapping[int, list[Instruction]] = field(repr=False)

    @cached_property
    def _by_id(self) -> Mapping[int, Instruction]:
        return {instruction.id: instruction for instruction in self.instructions.values()}

    def members(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that execute when this one does: those of a fusion or call, otherwise itself."""
        return list(self._members(instruction))

    def _members(self, instruction: Instruction) -> Iterator[Instruction]:
        if instruction.opcode not in _CALLS:
            yield instruction
            return
        for call in instruction.calls:
            for each in self.computations.get(call, []):
                if each.opcode not in _NO_WORK:
                    yield from self._members(each)

    def is_softmax(self, instruction: Instruction) -> bool:
        """Whether a fusion has what a softmax has: a reduction, and the exponential of a difference, x - max(x)."""
        members = self.members(instruction)
        return any(member.opcode == "reduce" for member in members) and any(
            operand.opcode == "subtract"
            for member in members
            if member.opcode == "exponential"
            for operand in self._operands(member)
        )

    def users(self, name: str) -> set[str]:
        """Names of the instructions that use an instruction's result, directly or through some that execute nothing."""
        found: set[str] = set()
        left = [self.instructions[name].id] if name in self.instructions else []
        seen = set(left)
        while left:
            for each in self._users.get(left.pop(), ()):
                if each.opcode not in _NO_WORK:
                    found.add(each.name)
                elif each.id not in seen:
                    seen.add(each.id)
                    left.append(each.id)
        return found

    def path_of_result(self, product: Instruction) -> str:
        """The path that a rewritten product left on what follows it; empty if there is none.

        XLA's CPU compiler replaces a convolution, and a product with a single row, by one of another layout, without a
        path, and a transposition of its result, which has the path.
        """
        opcode = next(member.opcode for member in self._members(product) if member.opcode in REWRITTEN)
        left, seen = [product.id], {product.id}
        while left:
            for user in self._users.get(left.pop(), ()):
                within = [user, *(each for call in user.calls for each in self.computations.get(call, []))]
                if any(each.opcode == opcode for each in within):
                    continue
                for each in within:
                    is_product = each.made_of.startswith(_OPS_REWRITTEN[opcode])
                    if each.paths and (is_product or each.paths[0].endswith(REWRITTEN[opcode])):
                        return each.paths[0]
                if not user.paths and user.id not in seen:
                    seen.add(user.id)
                    left.append(user.id)
        return ""

    @cached_property
    def _users(self) -> Mapping[int, list[Instruction]]:
        """The instructions that use each instruction as an operand, by its number."""
        users: dict[int, list[Instruction]] = {}
        for instruction in self.instructions.values():
            for operand in instruction.operands:
                users.setdefault(operand, []).append(instruction)
        return users

    def flops(self, instruction: Instruction) -> float:
        """FLOPs of the matrix products and convolutions in one execution, a multiply-add as 2; 0 if it has none.

        NaN if a dimension is unknown.
        """
        return float(sum(self._product_flops(member) for member in self.members(instruction)))

    def gemm(self, instruction: Instruction) -> Gemm | None:
        """The matrix product that an instruction computes; None if it computes none, or several."""
        products = [member for member in self.members(instruction) if self._product_flops(member)]
        operands = self._operands(products[0])[:2] if len(products) == 1 else []
        axes = _dot_of(products[0]) if operands else _NO_DOT
        return _gemm(axes, operands[0].shape, operands[1].shape) if axes.left else None

    def inputs(self, instruction: Instruction) -> str:
        """The shapes of an instruction's operands as text."""
        return inputs([str(operand.shape) for operand in self._operands(instruction)])

    def bytes(self, instruction: Instruction) -> float:
        """Minimum bytes moved by one execution: operands read once, results written once.

        NaN for control flow, if a dimension is unknown, and if only part of an operand is used. Those of an
        asynchronous operation are counted where it begins; its result is that of the instruction that waits for it.
        """
        if instruction.opcode in ("while", "conditional", "call", "async-update"):
            return math.nan
        if instruction.opcode.endswith(DONE) or any(member.opcode in _PARTIAL for member in self.members(instruction)):
            return math.nan
        last = self.done(instruction) if instruction.opcode.endswith(STARTS) else instruction
        if last is None:
            return math.nan
        return float(last.shape.bytes + sum(operand.shape.bytes for operand in self._operands(instruction)))

    def done(self, instruction: Instruction) -> Instruction | None:
        """The instruction that waits for the asynchronous operation that an instruction begins."""
        users = (self.instructions[name] for name in sorted(self.users(instruction.name)))
        return next((user for user in users if user.opcode.endswith(DONE)), None)

    def input_bytes(self, instruction: Instruction) -> int:
        """Bytes of all operands; -1 if a dimension is unknown."""
        size = sum(operand.shape.bytes for operand in self._operands(instruction))
        return int(size) if math.isfinite(size) and size < _MOST_BYTES else -1

    def _operands(self, instruction: Instruction) -> list[Instruction]:
        return [self._by_id[number] for number in instruction.operands if number in self._by_id]

    def _product_flops(self, instruction: Instruction) -> float:
        operands = self._operands(instruction)
        if len(operands) < 2:
            return 0
        first, second = (operand.shape.dimensions for operand in operands[:2])
        result = instruction.shape.parts[0] if instruction.shape.parts else instruction.shape
        if instruction.opcode == "convolution" or instruction.kernel_output_feature >= 0:
            return _convolution_flops(instruction, first, second, result.dimensions)
        contracting = _dot_of(instruction).left
        if not contracting or max(contracting) >= len(first):
            return 0
        return 2 * result.elements * _product([first[axis] for axis in contracting])


def _product(dimensions: Sequence[int]) -> float:
    """The product of dimensions; NaN if one is unknown, or if the product is too large for a float."""
    product = math.prod(map(float, dimensions))
    return product if math.isfinite(product) and max(dimensions, default=0) <= _LARGEST_DIM else math.nan


def _convolution_flops(
    instruction: Instruction, first: tuple[int, ...], second: tuple[int, ...], result: tuple[int, ...]
) -> float:
    """A multiply-add for each output element and each kernel element that contributes to it.

    In cuDNN's custom calls for the gradients, the gradient of the output is an operand; for the gradient of the kernel,
    the result has the kernel's shape.
    """
    output, kernel = result, second
    if "BackwardInput" in instruction.target:
        output = first
    elif "BackwardFilter" in instruction.target:
        output, kernel = second, result
    if not 0 <= instruction.kernel_output_feature < len(kernel):
        return 0
    return 2 * _product(output) * _product(kernel) / max(1, kernel[instruction.kernel_output_feature])


def _dot_of(instruction: Instruction) -> Dot:
    """The axes of a matrix product, also of a library's, which has them in its backend configuration."""
    if instruction.opcode != "custom-call":
        return instruction.dot if instruction.opcode == "dot" else _NO_DOT
    try:
        numbers = json.loads(instruction.config)["gemm_backend_config"]["dot_dimension_numbers"]
        found = Dot(*(tuple(int(axis) for axis in numbers.get(name, ())) for name in _CONFIGURED))
    except (AttributeError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return _NO_DOT
    return found if min(sum(found, ()), default=0) >= 0 else _NO_DOT


_CONFIGURED = (
    "lhs_contracting_dimensions",
    "rhs_contracting_dimensions",
    "lhs_batch_dimensions",
    "rhs_batch_dimensions",
)
"""Names of a product's axes in a backend configuration, in the order of `Dot`."""


def _gemm(axes: Dot, left: Shape, right: Shape) -> Gemm | None:
    """The product of two operands; None if the axes do not fit them, or a size is unknown."""
    m, n = _free(left, axes.left + axes.left_batch), _free(right, axes.right + axes.right_batch)
    if m is None or n is None:
        return None
    k, batch = (_size_of(left, chosen) for chosen in (axes.left, axes.left_batch))
    if (k, batch) != (_size_of(right, axes.right), _size_of(right, axes.right_batch)):
        return None
    letters = [
        _letter(left, axes.left, axes.left_batch, "NT"),
        _letter(right, axes.right, axes.right_batch, "TN"),
    ]
    return Gemm(dtype(left.dtype, right.dtype), m, n, k, batch, "".join(letters))


def _free(shape: Shape, taken: tuple[int, ...]) -> int | None:
    """The size of the axes that are not taken; None if the taken ones are not axes of the shape."""
    axes = set(range(len(shape.dimensions)))
    if len(set(taken)) < len(taken) or not axes.issuperset(taken) or not math.isfinite(shape.elements):
        return None
    return _size_of(shape, axes.difference(taken))


def _size_of(shape: Shape, axes: Iterable[int]) -> int:
    return math.prod(shape.dimensions[axis] for axis in axes)


def _letter(shape: Shape, contracting: tuple[int, ...], batch: tuple[int, ...], letters: str) -> str:
    """The first letter if an axis that is summed over is adjacent in memory, the second if another is."""
    if not shape.order:
        return "-"
    for axis in shape.order:
        if axis not in batch and axis < len(shape.dimensions) and shape.dimensions[axis] > 1:
            return letters[axis not in contracting]
    return "N"


def parse(proto: memoryview) -> Program:
    """Parse a program from a serialised HloProto. Raises `WireError` if it is not one."""
    module = next((value for number, value in fields(proto) if number == 1), None)
    if not isinstance(module, memoryview):
        raise WireError("it contains no HLO module")
    name, program_id = "", -1
    computations: dict[int, list[Instruction]] = {}
    for number, value in fields(module):
        if number == 1:
            name = text(value)
        elif number == 5 and isinstance(value, int):
            program_id = value
        elif number == 3 and isinstance(value, memoryview):
            key, instructions = -1, []
            for inner, part in fields(value):
                if inner == 5 and isinstance(part, int):
                    key = part
                elif inner == 2 and isinstance(part, memoryview):
                    instructions.append(_instruction(part))
            computations[key] = instructions
    sizes: dict[int, tuple[int, int]] = {}
    for key in computations:
        _size(key, computations, sizes, 0)
    by_name = {instruction.name: instruction for instructions in computations.values() for instruction in instructions}
    return Program(name, program_id, by_name, computations)


def _size(
    key: int, computations: Mapping[int, list[Instruction]], known: dict[int, tuple[int, int]], depth: int
) -> tuple[int, int]:
    """How many instructions a computation executes, including those that it calls, and how deep they nest.

    Raises `WireError` if there are too many.
    """
    if depth > _DEEPEST:
        raise WireError("its fusions nest too deep")
    if key not in known:
        instructions = computations.get(key, [])
        inner = [
            _size(call, computations, known, depth + 1)
            for instruction in instructions
            if instruction.opcode in _CALLS
            for call in instruction.calls
        ]
        size = len(instructions) + sum(count for count, _ in inner)
        deep = 1 + max((levels for _, levels in inner), default=0)
        if size > _MOST_MEMBERS or deep > _DEEPEST:
            raise WireError("its fusions nest too deep, or contain too many instructions")
        known[key] = size, deep
    return known[key]


def _instruction(proto: memoryview) -> Instruction:
    found: dict[str, object] = {"name": "", "opcode": ""}
    operands: list[int] = []
    calls: list[int] = []
    for number, value in fields(proto):
        if number in _TEXT_FIELDS:
            found[_TEXT_FIELDS[number]] = text(value)
        elif number == 35:
            found["id"] = value if isinstance(value, int) else 0
        elif number == 36:
            operands += integers(value)
        elif number == 38:
            calls += integers(value)
        elif isinstance(value, memoryview):
            if number == 3:
                found["shape"] = _shape(value)
            elif number == 7:
                found["paths"], found["source"], found["made_of"] = _metadata(value)
            elif number == 16:
                found["kernel_output_feature"] = next((v for n, v in fields(value) if n == 4 and isinstance(v, int)), 0)
            elif number == 30:
                found["dot"] = _dot(value)
    return Instruction(**found, operands=tuple(operands), calls=tuple(calls))  # type: ignore[arg-type]


def _dot(proto: memoryview) -> Dot:
    """A product's axes, which are fields 1 to 4 of DotDimensionNumbers."""
    axes: dict[int, tuple[int, ...]] = {}
    for number, value in fields(proto):
        axes[number] = axes.get(number, ()) + tuple(integers(value))
    return Dot(*(axes.get(number, ()) for number in range(1, 5)))


_TEXT_FIELDS = {1: "name", 2: "opcode", 28: "target", 43: "config"}


def _shape(proto: memoryview, depth: int = 0) -> Shape:
    dimensions: list[int] = []
    parts: list[Shape] = []
    dtype, bits = "", 0
    order: tuple[int, ...] = ()
    for number, value in fields(proto):
        if number == 2 and isinstance(value, int):
            dtype, bits = _TYPES.get(value, ("", 0))
        elif number == 3:
            dimensions += integers(value)
        elif number == 4 and isinstance(value, memoryview) and depth < _DEEPEST:
            parts.append(_shape(value, depth + 1))
        elif number == 5 and isinstance(value, memoryview):
            order = tuple(axis for n, v in fields(value) if n == 1 for axis in integers(v))
    return Shape(tuple(dimensions), bits, tuple(parts), dtype, order)


def _metadata(proto: memoryview) -> tuple[tuple[str, ...], str, str]:
    """Paths, source line and type of an instruction; one made from several has all their paths, separated by `;`."""
    paths: tuple[str, ...] = ()
    file, line, made_of = "", 0, ""
    for number, value in fields(proto):
        if number == 1:
            made_of = text(value)
        elif number == 2:
            paths = tuple(path for path in text(value).split(";") if path)
        elif number == 3:
            file = PurePath(text(value)).name
        elif number == 4 and isinstance(value, int):
            line = value
    return paths, f"{file}:{line}" if file else "", made_of
