"""DLRM, the recommendation model: embedding bags, an MLP on dense features, dot products of all pairs, another MLP.

After Naumov et al. (2019), with the sum of each bag. All tables have equally many rows and lie one after the other in
one array, as the grouped embeddings of large systems do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, HasParameters, Mode, Precision, Problem, Work, hookimpl
from benchmarker_problems.dlrm.reference import BAGS, LEARNING_RATE, TABLES, binary_cross_entropy, forward
from benchmarker_problems.layers import DERIVED, Shapes, fill, size_of
from benchmarker_problems.layers.layer import Layer, Linear, Pointwise, parts_of, shapes_of
from benchmarker_problems.layers.reference import relu
from benchmarker_problems.layers.work import RowWork, update

Size = Literal["small", "synthetic", "mlperf"]
SIZES: Mapping[Size, Mapping[str, Any]] = {
    "small": {
        "tables": 8,
        "rows": 100_000,
        "pooling": 8,
        "embedding_dim": 32,
        "dense_features": 13,
        "bottom_mlp": "256-64",
        "top_mlp": "256-128",
    },
    "synthetic": {
        "tables": 8,
        "rows": 1_000_000,
        "pooling": 100,
        "embedding_dim": 64,
        "dense_features": 512,
        "bottom_mlp": "512",
        "top_mlp": "1024-1024-1024",
    },
    "mlperf": {
        "tables": 26,
        "rows": 1_000_000,
        "pooling": 1,
        "embedding_dim": 128,
        "dense_features": 13,
        "bottom_mlp": "512-256",
        "top_mlp": "1024-1024-512-256",
    },
}
"""`synthetic` is the authors' bench/dlrm_s_benchmark.sh, but each bag has 100 indices, not up to 100. `mlperf` is
bench/run_and_time.sh, MLPerf Training's DLRM of 2020 to 2022, but the 3 to 40 million rows of a table are a million."""
LARGEST_INDEX = 2**31 - 1


@dataclass(frozen=True)
class Dlrm(HasParameters):
    """DLRM: forward only, forward and backward, or training with SGD.

    `inference` returns the logit of each sample. The loss is the mean binary cross-entropy. The gradient of the tables
    is sparse: `forward_backward` gives that of each bag, which is the gradient of every row in it. Training subtracts
    it from these rows alone, so that SGD is exact but the other rows are not touched. SGD is the authors' optimizer.
    """

    summary = "DLRM click prediction: logits, loss and gradients, or a sparse SGD step"
    accelerator = {"size": "synthetic", "batch_size": 2048}
    optimizer_numbers = 0
    cost_formula = (
        "flops = 2·B·(Σ inputs·outputs of both MLPs' layers + N²·embedding_dim) with N = tables + 1 vectors, 3 times "
        "that with backward, but 2 times for the first layer, whose inputs need no gradient\n"
        "bytes = weights of the MLPs, distinct rows looked up (as the skew lets expect), dense features, indices and "
        "logits once; with backward also the gradients of MLPs and bags; 3·weights of the MLPs and 2·rows with SGD"
    )

    size: Annotated[Size, Meta(description="published size or a small one; the seven options below override it")] = (
        "small"
    )
    tables: Annotated[int, Meta(ge=1, description="embedding tables, one for each categorical feature")] = DERIVED
    rows: Annotated[int, Meta(ge=1, description="rows of each table")] = DERIVED
    pooling: Annotated[int, Meta(ge=1, description="indices per bag, whose rows are summed")] = DERIVED
    embedding_dim: Annotated[int, Meta(ge=1, description="width of a row")] = DERIVED
    dense_features: Annotated[int, Meta(ge=1, description="numeric features of a sample")] = DERIVED
    bottom_mlp: Annotated[
        str, Meta(description="hidden widths of the MLP on dense features, such as 512-256; ends in embedding_dim")
    ] = DERIVED
    top_mlp: Annotated[
        str, Meta(description="hidden widths of the MLP on the products of pairs; ends in one logit")
    ] = DERIVED
    skew: Annotated[
        float, Meta(ge=0, le=10, description="exponent of Zipf's law by which rows are looked up; 0: all alike")
    ] = 1.0
    batch_size: Annotated[int, Meta(ge=1, description="samples per step")] = 128

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        for name in ("bottom_mlp", "top_mlp"):
            widths = getattr(self, name).split("-")
            if not all(width.isdecimal() and 0 < int(width) <= LARGEST_INDEX for width in widths):
                raise ValueError(f"{name}={getattr(self, name)} is not a list of widths such as 512-256")
        if self.tables * self.rows > LARGEST_INDEX:
            raise ValueError(f"tables·rows={self.tables * self.rows} exceeds 32-bit indices; give fewer rows")

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """Widths of the bottom MLP from the dense features to the width of a row."""
        return (self.dense_features, *map(int, self.bottom_mlp.split("-")), self.embedding_dim)

    @property
    def vectors(self) -> int:
        """Vectors of a sample whose products in pairs are taken: one of each table, and one of the bottom MLP."""
        return self.tables + 1

    @property
    def pairs(self) -> int:
        """Pairs of different vectors."""
        return self.vectors * (self.vectors - 1) // 2

    @property
    def top_widths(self) -> tuple[int, ...]:
        """Widths of the top MLP from the products of pairs, beside the bottom MLP's result, to the logit."""
        return (self.embedding_dim + self.pairs, *map(int, self.top_mlp.split("-")), 1)

    @property
    def bottom(self) -> tuple[Layer, ...]:
        """The MLP on dense features."""
        return tuple(_mlp("bottom", self.bottom_widths))

    @property
    def top(self) -> tuple[Layer, ...]:
        """The MLP on the products of pairs; no ReLU is behind the logit."""
        return tuple(_mlp("top", self.top_widths))[:-1]

    @property
    def lookups(self) -> int:
        """Rows that a step looks up, counting each as often as it occurs."""
        return self.batch_size * self.tables * self.pooling

    @property
    def distinct_rows(self) -> int:
        """Expected number of different rows that a step looks up."""
        return round(self.tables * _expected_distinct(self.rows, self.skew, self.batch_size * self.pooling))

    def title(self, mode: Mode) -> str:
        """Return the size, what differs from it, the mode and the batch: `DLRM small rows=50 training, B=128`."""
        own = "".join(
            f" {name}={getattr(self, name)}" for name, value in SIZES[self.size].items() if getattr(self, name) != value
        )
        skew = "" if self.skew == Dlrm.skew else f" skew={self.skew:g}"
        return f"DLRM {self.size}{own}{skew} {mode.replace('forward_backward', 'fwd+bwd')}, B={self.batch_size}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the four parts of the model, the loss, and the updates of MLPs (`optimizer`) and of tables."""
        loss = () if mode == "inference" else ("loss",)
        updates = ("optimizer", "embed_update") if mode == "training" else ()
        return dict.fromkeys(("embed", "bottom_mlp", "interaction", "top_mlp", *loss, *updates), 1)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the products; pooling has none."""
        types = PRECISIONS[precision]
        item = types.parameter_bytes
        rows, bags = self.distinct_rows * self.embedding_dim, self.batch_size * self.tables * self.embedding_dim
        mlps = size_of(self.mlp_shapes())
        inputs_bytes = self.batch_size * self.dense_features * item + 4 * self.lookups
        moved = {
            "inference": (mlps + rows) * item + inputs_bytes + self.batch_size * types.compute_bytes,
            "forward_backward": (2 * mlps + rows + bags + self.batch_size) * item + inputs_bytes,
            "training": (3 * mlps + 2 * rows + bags + self.batch_size) * item + inputs_bytes,
        }
        flops = sum(work.flops for work in self.parts(mode, precision).values())
        return Cost(flops, moved[mode], samples=self.batch_size)

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope; rows that are looked up often count once."""
        layers = RowWork(self.batch_size, precision, mode != "inference")
        item = layers.weight_bytes
        bags = self.tables * self.embedding_dim
        rows_bytes = self.distinct_rows * self.embedding_dim * item
        bags_bytes = self.batch_size * bags * item + 4 * self.lookups
        parts = {
            "embed": Work(0, rows_bytes + bags_bytes, rows_bytes),
            "bottom_mlp": _total(parts_of(self.bottom, layers)),
            "interaction": layers.part(
                2 * self.batch_size * self.vectors**2 * self.embedding_dim,
                read=self.batch_size * self.vectors * self.embedding_dim,
                written=self.batch_size * self.top_widths[0],
            ),
            "top_mlp": _total(parts_of(self.top, layers)),
            "loss": layers.pointwise(1, 0),
            "optimizer": update(3 * size_of(self.mlp_shapes()) * item),
            "embed_update": Work(0, 2 * rows_bytes + bags_bytes, 2 * rows_bytes),
        }
        return {name: parts[name] for name in self.scopes(mode)}

    def parameter_count(self) -> int:
        """Return the number of weights."""
        return size_of(self.weight_shapes())

    def memory(self, mode: Mode, precision: str) -> Mapping[str, int]:
        """Return the bytes of weights, and of the gradients of the MLPs and of each bag: no table has one."""
        parts = dict(super().memory(mode, precision))
        if mode != "inference":
            bags = self.batch_size * self.tables * self.embedding_dim
            parts["gradients"] = (size_of(self.mlp_shapes()) + bags) * PRECISIONS[precision].parameter_bytes
        return parts

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a larger bound for gradients in short types.

        Where rounding moves the input of a ReLU across zero, a gradient is passed on or not: in bf16 and fp16, a few
        units of the small size, and chance decides which. Measured errors are up to 0.25 (120 draws). A wrong sign or
        factor is still found.
        """
        types = PRECISIONS[precision]
        return replace(types, stated_bound=0.4) if mode == "forward_backward" and types.is_short else types

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as the authors do, and samples whose clicks can be learned.

        Kernels are drawn from N(0, 2/(inputs + outputs)), biases from N(0, 1/outputs), rows uniformly from ±1/√rows.
        Frequent rows lie anywhere in their table. A sample is clicked if fixed random scores of its rows have a
        positive sum. Its dense features are noise on a fixed pattern, which is negative if it is not clicked.
        """
        weights = {name: _draw(name, shape, self, rng) for name, shape in self.weight_shapes().items()}
        row_scores = rng.standard_normal(self.tables * self.rows, dtype=np.float32)
        pattern_I = rng.standard_normal(self.dense_features, dtype=np.float32)
        by_rank_SR = rng.permuted(
            np.arange(self.tables * self.rows, dtype=np.int32).reshape(self.tables, self.rows), axis=1
        )
        below_R = np.cumsum(probabilities(self.rows, self.skew))
        tables_S1 = np.arange(self.tables)[:, None]

        def batch() -> Mapping[str, np.ndarray]:
            ranks_BSP = np.searchsorted(
                below_R[:-1], rng.random((self.batch_size, self.tables, self.pooling)), side="right"
            )
            indices_BSP = by_rank_SR[tables_S1, ranks_BSP]
            clicked_B = row_scores[indices_BSP].sum(axis=(1, 2)) > 0
            dense_BI = rng.standard_normal((self.batch_size, self.dense_features), dtype=np.float32)
            dense_BI += np.where(clicked_B[:, None], pattern_I, -pattern_I)
            return {"dense": dense_BI, "indices": indices_BSP, "targets": clicked_B.astype(np.float32)}

        dtype = np.float64 if precision == "fp64" else np.float32
        cast = {name: weight.astype(dtype, copy=False) for name, weight in weights.items()}
        return Data(cast, tuple(batch() for _ in range(batches)))

    def small(self) -> Self:
        """Return few tables and narrow MLPs with dimensions that all differ."""
        return replace(
            self,
            tables=min(self.tables, 4),
            rows=31,
            pooling=min(self.pooling, 3),
            embedding_dim=10,
            dense_features=29,
            bottom_mlp="23-18",
            top_mlp="29-21",
            batch_size=101,
        )

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the logits; or the loss and the gradients of MLPs and bags; or the loss before a step of SGD."""
        logits_B, pullback = forward(weights, batch["dense"], batch["indices"], self)
        if mode == "inference":
            return {"logits": logits_B}
        loss, d_logits_B = binary_cross_entropy(logits_B, batch["targets"])
        gradients = pullback(d_logits_B)
        if mode == "forward_backward":
            return {"loss": loss, **{f"d_{name}": gradient for name, gradient in gradients.items()}}
        d_bags_BSD = gradients.pop(BAGS)
        for name, gradient in gradients.items():
            weights[name][...] -= LEARNING_RATE * gradient
        np.subtract.at(weights[TABLES], batch["indices"], LEARNING_RATE * d_bags_BSD[:, :, None])
        return {"loss": loss}

    def mlp_shapes(self) -> Shapes:
        """Return the shape of every weight of both MLPs by name, in order of use; a `kernel` is [inputs, outputs]."""
        return shapes_of((*self.bottom, *self.top))

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name."""
        return {TABLES: (self.tables * self.rows, self.embedding_dim), **self.mlp_shapes()}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the DLRM problem."""
    return Dlrm


def probabilities(rows: int, skew: float) -> np.ndarray:
    """Return how probable each row is, [R], from the most to the least frequent: Zipf's law, rank^(−skew)."""
    share_R = np.arange(1, rows + 1, dtype=np.float64) ** -skew
    share_R /= share_R.sum()
    return share_R


@lru_cache
def _expected_distinct(rows: int, skew: float, lookups: int) -> float:
    """Return the expected number of different rows among so many lookups in a table."""
    return float((1 - (1 - probabilities(rows, skew)) ** lookups).sum())


def pair_positions(vectors: int) -> np.ndarray:
    """Return where each pair of different vectors stands in the flat matrix of all products, [N·(N − 1)/2]."""
    return np.ravel_multi_index(np.tril_indices(vectors, -1), (vectors, vectors)).astype(np.int32)


def _draw(name: str, shape: tuple[int, ...], problem: Dlrm, rng: np.random.Generator) -> np.ndarray:
    if name == TABLES:
        weight = rng.random(shape, dtype=np.float32)
        weight -= np.float32(0.5)
        weight *= np.float32(2 * problem.rows**-0.5)
        return weight
    variance = 2 / sum(shape) if len(shape) == 2 else 1 / shape[0]
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(variance**0.5)


def _mlp(name: str, widths: tuple[int, ...]) -> Iterator[Layer]:
    """Yield linear layers, each with a ReLU behind it; the bottom one is on the data of a batch."""
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        yield Linear(f"{name}.{number}", inputs, outputs, of_data=name == "bottom" and number == 0)
        yield Pointwise(f"{name}.{number}.relu", relu, outputs, outputs)


def _total(parts: Mapping[str, Work]) -> Work:
    return sum(parts.values(), Work(0, 0))
