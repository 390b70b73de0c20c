"""The meaning of each precision's name, which is the same in every framework."""

from dataclasses import dataclass
from math import ceil
from typing import Literal


@dataclass(frozen=True, slots=True)
class Precision:
    """The types that a precision uses, and how large the error of a correct result may be apart from rounding to them.

    `parameter` is the type of weights and inputs, `compute` that of the factors of a matrix product,
    `accumulate` that of its sums. `lowest` classifies a result in comparisons: it is the type with the
    largest unit roundoff among `parameter` and `compute`, also if it is hidden in products.
    """

    name: str
    parameter: str
    compute: str
    accumulate: str
    stated_bound: float | None = None
    """The bound of a problem that states its own."""
    slices: int = 0
    """Number of int8 matrices that stand for each factor of a product in fp64, whose products are exact and added up.

    That is the Ozaki scheme on integers: Ootomo, Ozaki and Yokota, "DGEMM on integer matrix multiplication unit", 2024.
    """

    scale: Literal["", "tensor", "row", "mx", "nv"] = ""
    """What shares a scale of numbers in a type of few exponents: a whole matrix, or a row of A and a column of B.

    Or a block of these: of 32 numbers, as in the microscaling formats (`mx`), or of 16, as in NVFP4 (`nv`).
    """
    quantizes: bool = False
    """Whether products with weights alone are computed in `compute`, all else in `parameter`.

    Weights are quantised beforehand, and what they are multiplied with in each step.
    """

    @property
    def is_emulated(self) -> bool:
        """Whether its products are made of exact copies of the factors in fp32: an error is measured, but no time."""
        return self.scale in ("mx", "nv")

    @property
    def lowest(self) -> str:
        """The type with the larger unit roundoff of `parameter` and `compute`."""
        return max(self.parameter, self.compute, key=lambda name: UNIT_ROUNDOFF[name])

    @property
    def result(self) -> str:
        """The type of results: that of the factors, or of the weights if nothing but products is in a shorter one."""
        return self.parameter if self.compute == "tf32" or self.quantizes else self.compute

    @property
    def parameter_bytes(self) -> int:
        """Whole bytes that hold one weight or input."""
        return ceil(ITEM_BYTES[self.parameter])

    @property
    def compute_bytes(self) -> int:
        """Whole bytes that hold one number between products."""
        return ceil(ITEM_BYTES[self.result])

    @property
    def is_mixed(self) -> bool:
        """Whether weights are kept in fp32 while products are computed in a shorter type."""
        return self.name.startswith("mixed_")

    @property
    def roundoff(self) -> float:
        """The unit roundoff of the lowest type."""
        return UNIT_ROUNDOFF[self.lowest]

    @property
    def is_short(self) -> bool:
        """Whether weights, inputs or factors have a shorter type than the sums, to which they are rounded."""
        return self.roundoff > UNIT_ROUNDOFF.get(self.accumulate, 1.0)

    @property
    def bound(self) -> float:
        """Largest relative error (2-norm, compared with float64) of correct arithmetic in the type of the sums.

        The bound is 32 unit roundoffs, because frameworks add in any order. This is about four times the error of two
        transformer layers, forward and backward, in fp32. There it is below the change in loss (4e-6) that results from
        omitting AdamW's weight decay for two steps. Integers must be exact. A check allows more if `is_short`.
        """
        if self.stated_bound is not None:
            return self.stated_bound
        return 0.0 if self.accumulate == "int32" else 32 * UNIT_ROUNDOFF[self.accumulate]


# Half the distance from 1 to the next number, 2**-p for p significand bits (IEEE 754-2019, table 3.5; bfloat16 8
# bits, TensorFloat-32 11 bits: NVIDIA A100 whitepaper, 2020; E4M3 4 bits and E5M2 3 bits: OCP 8-bit Floating Point
# Specification, revision 1.0, 2023; E2M1 2 bits: OCP Microscaling Formats Specification, version 1.0, 2023). Integers
# have no roundoff; they rank as the coarsest.
UNIT_ROUNDOFF = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "fp8_e4m3": 2.0**-4,
    "fp8_e5m2": 2.0**-3,
    "fp4_e2m1": 2.0**-2,
    "int8": 1.0,
    "int4": 1.0,
}

ITEM_BYTES: dict[str, float] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
ITEM_BYTES |= {"fp8_e4m3": 1, "fp8_e5m2": 1, "fp4_e2m1": 0.5, "int8": 1, "int4": 0.5}

PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("fp64", "fp64", "fp64", "fp64"),
        Precision("fp32", "fp32", "fp32", "fp32"),
        Precision("tf32", "fp32", "tf32", "fp32"),
        Precision("bf16", "bf16", "bf16", "fp32"),
        Precision("fp16", "fp16", "fp16", "fp32"),
        Precision("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "fp32", scale="tensor"),
        Precision("fp8_e5m2", "fp8_e5m2", "fp8_e5m2", "fp32", scale="tensor"),
        Precision("fp8_e4m3_row", "fp8_e4m3", "fp8_e4m3", "fp32", scale="row"),
        Precision("fp8_e5m2_row", "fp8_e5m2", "fp8_e5m2", "fp32", scale="row"),
        Precision("mxfp8_e4m3", "fp8_e4m3", "fp8_e4m3", "fp32", scale="mx"),
        Precision("mxfp8_e5m2", "fp8_e5m2", "fp8_e5m2", "fp32", scale="mx"),
        Precision("mxfp4", "fp4_e2m1", "fp4_e2m1", "fp32", scale="mx"),
        Precision("nvfp4", "fp4_e2m1", "fp4_e2m1", "fp32", scale="nv"),
        Precision("int8", "int8", "int8", "int32"),
        *(Precision(f"fp64_int8x{count}", "fp64", "int8", "fp64", slices=count) for count in range(6, 11)),
        Precision("int8_dynamic", "fp32", "int8", "fp32", quantizes=True),
        Precision("mixed_bf16", "fp32", "bf16", "fp32"),
        Precision("mixed_fp16", "fp32", "fp16", "fp32"),
    )
}
FLOATS = tuple(
    name
    for name, types in PRECISIONS.items()
    if types.bound and not (types.is_mixed or types.slices or types.scale or types.quantizes)
)
"""Precisions of one floating-point type; tf32 is that of products only, whose factors are stored in fp32."""
STORED_FLOATS = tuple(name for name in FLOATS if PRECISIONS[name].parameter == name)
"""Those of a type in which arrays are stored: the others differ only in products."""
MIXED = tuple(name for name, types in PRECISIONS.items() if types.is_mixed)
"""Precisions that keep weights in fp32 and compute products in a shorter type."""
