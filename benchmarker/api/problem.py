"""The interface of a problem and of its implementations.

Values are frozen, and data flows in one direction: a `Case` defines what to run, a `Framework` and a `Problem` make a
`Workload` from it, and the measurements of the workload become a `Record`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from benchmarker.api.case import Cache, Mode, Parallel
from benchmarker.api.cost import Cost, Counted, Work
from benchmarker.api.errors import UserError
from benchmarker.api.metric import Figure
from benchmarker.api.precision import PRECISIONS, Precision
from benchmarker.api.program import Execution

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


Arrays = Mapping[str, "np.ndarray"]
"""Arrays by name."""


@dataclass(frozen=True, slots=True)
class Support:
    """What an implementation supports: the precisions of each mode and, if limited, the values of a parameter.

    `choices` may limit `mode`, `precision` and `device` too, as in `{"device": ("cpu",)}`. `exclusions` lists
    unsupported combinations of supported values. Each maps `mode`, `precision`, `device`, `parallel` or a parameter's
    name to a value as text, and applies if all of its values match. `parallel` lists how several devices can divide a
    step, the default first; without any, one device computes it.
    """

    precisions: Mapping[Mode, tuple[str, ...]]
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclusions: tuple[Mapping[str, str], ...] = ()
    parallel: tuple[Parallel, ...] = ()


@dataclass(frozen=True, slots=True)
class Collective:
    """Exchanges of one kind between all devices in a step: `all_reduce`, `all_gather` or `reduce_scatter`.

    `bytes` is the sum, over all of them, of the size of the larger array of a device, its input or its output, as NCCL
    Tests define it. `count` is that of the strategy as it is described: one for all gradients, or for a block. A
    framework may combine or divide exchanges, which changes the count and not the bytes.
    """

    op: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Published:
    """Published figures of a problem with the given options, to hold `Problem.parameter_count` and `cost` against.

    `parameters` is the number of trained parameters; `flops` are those of the forward pass of one step, with a
    multiply-add counted as 2. `source` says where the figures stand.
    """

    options: Mapping[str, Any]
    source: str
    parameters: int | None = None
    flops: float | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file or module that a user named as a problem: its name as the user wrote it, and the digest of its content."""

    path: str
    sha256: str


IN_PROCESS = "in-process"
"""Name of the problem whose functions are given as values, in the process that has them."""
FUNCTION = "function"
"""The option of such a problem that names what of the file is measured."""


@dataclass(frozen=True, slots=True)
class Data:
    """Weights by name, and several input batches, each at another place in memory, as NumPy arrays on the host."""

    weights: Mapping[str, np.ndarray]
    batches: tuple[Mapping[str, np.ndarray], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What some scopes of a step compute together, as another problem that measures it alone; a step has `count`.

    `options` are those of the problem of that name.
    """

    scopes: tuple[str, ...]
    problem: str
    options: Mapping[str, Any]
    count: int = 1


Token = Literal["first", "next"]
"""A token of a request for text: the first after its prompt, or one that follows another."""


@dataclass(frozen=True, slots=True)
class Exact:
    """What the outputs of successive steps are held to: the exact ones, and the largest relative error of each.

    `against` says what computed them, in words. `elements` has the largest error of a single element of some outputs,
    as `element_error` counts it.
    """

    steps: Sequence[Mapping[str, np.ndarray]]
    bounds: Mapping[str, float]
    against: str
    elements: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """A case that is ready to run: weights and inputs are on the device.

    `step` runs one unsynchronised step on the next of the batches, in turns, and does nothing else. `outputs` copies
    the result of a step to the host, under the names that `Problem.reference` uses. `recomputed_flops` is the forward
    work of a step that the implementation repeats in its backward pass. `verify` returns why the result of a step is
    wrong, or None; it is called at full size, where the reference would take too long, after timing. `tokens` runs one
    request for text, with its prompts on the host at first; it calls its argument for each token, as soon as that of
    every sequence is on the host. `local` makes steps with the same work without communication: one for each device of
    this process, with the share that the device has in `step`. They are run after everything else, each in a thread of
    its own if there are several, and may leave the state of `step` useless.

    A workload of code that only its framework can run has `exact`, which returns what its outputs are held to instead
    of `Problem.reference`, or why nothing tells whether they are right; and `counted`, instead of `Problem.cost`.
    `figures`, called once after timing in the first rank, returns what else it tells of itself, for a metric to show.
    `suspicions`, called after timing, returns what makes its time doubtful. That of a program has an `execution`, and
    its `step` is never called.

    Where several devices divide a training step, all ranks call the last two for the check, and both return a mapping
    for each device of this process. `weights` returns the weights that a device has whole, as they are now. `gradients`
    runs a step and returns its loss, and the gradients with which the device updates its weights, under the names that
    `Problem.reference` uses in `forward_backward`; those that are divided are gathered. It may leave the state of
    `step` useless.
    """

    step: Callable[[], Any]
    outputs: Callable[[Any], Mapping[str, np.ndarray]]
    recomputed_flops: int = 0
    verify: Callable[[Any], str | None] = lambda _: None
    tokens: Callable[[Callable[[Token], object]], object] | None = None
    local: Callable[[], Sequence[Callable[[], Any]]] | None = None
    weights: Callable[[], Sequence[Mapping[str, np.ndarray]]] | None = None
    gradients: Callable[[], Sequence[Mapping[str, np.ndarray]]] | None = None
    exact: Callable[[], Exact | str] | None = None
    counted: Counted | None = None
    figures: Callable[[], Sequence[Figure]] = list
    suspicions: Callable[[], Sequence[str]] = list
    execution: Execution | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """A text generator for several sequences at the same time, each in one of the `slots` of its cache.

    `fill` computes a prompt of token ids [P] in a slot, and returns the first new token. `decode` returns the next
    token of every slot, [slots]; that of a slot which is not in use means nothing. Both return when the tokens are on
    the host, and choose those with the largest logit. A slot has room for so many `positions`; token ids are below
    `vocab_size`.
    """

    fill: Callable[[int, np.ndarray], int]
    decode: Callable[[], np.ndarray]
    slots: int
    positions: int
    vocab_size: int


NO_WEAK_SCALING = "this problem has no weak scaling; use --scaling=strong"


@dataclass(frozen=True)
class Problem(ABC):
    """A problem to measure, defined independently of any framework: a frozen dataclass whose fields are its options.

    Ranges and help are in `Annotated[type, msgspec.Meta(...)]`. The defaults suit a CPU; `accelerator` overrides them
    on other devices. `Divides`, `IsExchange` and `Generates` are problems that can do more.
    """

    summary: ClassVar[str]
    accelerator: ClassVar[Mapping[str, Any]] = {}
    cost_formula: ClassVar[str]
    published: ClassVar[tuple[Published, ...]] = ()
    cache: ClassVar[Cache | None] = None
    """Where steps find their inputs unless `--cache` says it; None: in four batches, which weights often exceed."""
    reads: ClassVar[Mapping[Mode, tuple[str, ...]]] = {}
    """Names of the inputs that a step reads, of a mode in which it does not read all that `data` draws."""
    sums_products: ClassVar[bool] = False
    """Whether each element of an output is a sum of products of inputs, so that its own error is checked too.

    `reference` then gives for the absolute values of the inputs what the error of each element is a share of.
    """
    frameworks: ClassVar[tuple[str, ...] | None] = None
    """Frameworks that the problem is for; None for all that have an implementation."""
    source: ClassVar[Source | None] = None
    """The user's file that the problem is, or the version of the library that has it; None for a plugin."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Distributions besides the framework's that a step runs, such as `transformers`; records have their versions."""

    @abstractmethod
    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the scopes that every implementation marks, and how often a step enters each."""

    @abstractmethod
    def cost(self, mode: Mode, precision: str) -> Cost:
        """Return the work of one step."""

    def title(self, mode: Mode) -> str:
        """Return the name of a case in a few words, such as `GEMM 16×4096×4096`; empty if it has none.

        It states what is computed and the sizes. Tables add the framework, the precision and other factors in which
        their cases differ. A case without a title is named by its options.
        """
        return ""

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of a step by scope, by default that of `cost` for the only one; empty if there is no formula.

        The FLOPs of all parts add up to those of `cost`. Each part reads its inputs and weights and writes its
        outputs: nothing stays in a cache from one part to the next. The sum of the bytes therefore exceeds that of
        `cost`.
        """
        scopes = self.scopes(mode)
        if list(scopes.values()) != [1]:
            return {}
        cost = self.cost(mode, precision)
        return dict.fromkeys(scopes, Work(cost.flops, cost.bytes))

    def pieces(self) -> Sequence[Piece]:
        """Return what of a step another problem measures alone, such as products of matrices; by default nothing."""
        return ()

    def refuse(self, mode: Mode) -> None:
        """Raise `UserError` if options make no sense in a mode, such as one that would do nothing there."""
        return

    def user_files(self) -> tuple[Path, ...]:
        """Return the files of the user that options name; raises `UserError` if one is not what it was in the plan."""
        return ()

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types that a precision stands for; some options may make weights or products of another type.

        Its bound is a relative error at which an output counts as correct in any case. If weights, inputs or factors
        have a shorter type than the sums, a check allows what rounding them does to the reference. A problem in which
        this depends on chance states a larger bound, and why. Raises `UserError` if the precision cannot hold the
        problem's numbers.
        """
        return PRECISIONS[precision]

    @abstractmethod
    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return weights and `batches` distinct inputs: float32, float64 for fp64, complex likewise, or integers."""

    @abstractmethod
    def small(self) -> Self:
        """Return the same problem at a size that the reference computes in well under a second."""

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the outputs of successive steps, computed in float64 with NumPy: those of `step`.

        Workloads may have more outputs in later steps than the reference: those of the first.
        """
        weights = in_float64(data.weights)
        for batch in data.batches:
            yield self.step(weights, in_float64(batch), mode)

    def deviations(self, data: Data, mode: Mode, precision: str) -> Iterable[Arrays] | None:
        """Return how far off each element of the outputs of successive steps may be, apart from rounding of sums.

        None in arithmetic in which rounding to the types of the precision says it.
        """
        return None

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the outputs of a step in NumPy, in the type of its arguments; training changes the weights in place.

        A problem has it, or a `reference` of its own.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither step nor reference")


def in_float64(arrays: Arrays) -> Arrays:
    """Return copies of arrays in float64, or complex128; those of other numbers as they are."""
    wide = {"f": "float64", "c": "complex128"}
    return {
        name: array.astype(wide[kind]) if (kind := array.dtype.kind) in wide else array
        for name, array in arrays.items()
    }


class HasParameters(Problem):
    """A problem with parameters, which training changes."""

    optimizer_numbers: ClassVar[int] = 2
    """Numbers that the optimizer keeps for each weight in training: AdamW's two moments."""

    @abstractmethod
    def parameter_count(self) -> int:
        """Return the number of trained parameters."""

    def weight_bytes(self, precision: str) -> int:
        """Return the bytes of the trained parameters as they are stored."""
        return self.parameter_count() * PRECISIONS[precision].parameter_bytes

    def memory(self, mode: Mode, precision: str) -> Mapping[str, int]:
        """Return the bytes that a step holds at the same time, by what they hold, as far as there is a formula.

        That is weights, their gradients and the optimizer's state, all of the weights' type; in inference also one
        batch of inputs and results: all that `cost` moves but the weights. Activations are not in it: which are kept is
        the framework's choice.
        """
        weights = self.weight_bytes(precision)
        parts = {"weights": weights}
        if mode == "inference":
            parts["inputs and results"] = max(0, self.cost(mode, precision).bytes - weights)
        else:
            parts["gradients"] = weights
        if mode == "training":
            parts["optimizer state"] = self.optimizer_numbers * weights
        return {name: count for name, count in parts.items() if count}


@dataclass(frozen=True)
class Divides(Problem):
    """A problem that several devices compute together; `devices` and `parallel` are those of the case, not options."""

    devices: int = field(default=1, kw_only=True)
    parallel: Parallel = field(default="none", kw_only=True)

    def on(self, devices: int, parallel: Parallel = "none") -> Self:
        """Return the problem as several devices compute it together.

        In a process group, each output belongs to one rank or to all of them: a rank gives those that it has.
        """
        return replace(self, devices=devices, parallel=parallel)

    def grown(self) -> Self:
        """Return `devices` times the work, so that each device has as much as one alone (weak scaling).

        `Cost.samples` grows in the same proportion. Raises `UserError` if there is no such work.
        """
        raise UserError(NO_WEAK_SCALING)

    def collectives(self, mode: Mode, precision: str) -> tuple[Collective, ...]:
        """Return what the devices must exchange in a step by formula, one of each kind; empty if there is none.

        Devices that divide no work (`parallel` is `none`) exchange nothing, unless the problem is an exchange.
        """
        return ()

    def in_fp64(self) -> Self:
        """Return the same computation with options that implementations support in fp64; by default the same."""
        return self


class IsExchange(Divides):
    """A problem that is nothing but an exchange between devices: between two nodes, it measures their link."""

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return nothing: the bytes of `cost` go from device to device, not through memory."""
        return {}


class Generates(HasParameters):
    """A problem that can generate text, with a cache of what is kept from step to step for every sample."""

    @abstractmethod
    def phases(self) -> Mapping[str, tuple[int, Self]]:
        """Return the phases of which a step consists, by name: how often each runs, and the problem of it alone."""

    @abstractmethod
    def cache_bytes(self, precision: str) -> int:
        """Return the bytes that are allocated for the cache; 0 if a step has none."""

    def memory(self, mode: Mode, precision: str) -> Mapping[str, int]:
        """Return the bytes that a step holds at the same time; beside a cache, inputs and results are nothing."""
        parts, cache = super().memory(mode, precision), self.cache_bytes(precision)
        if not cache:
            return parts
        return {name: count for name, count in parts.items() if name != "inputs and results"} | {"cache": cache}

    def check_steps(self) -> int:
        """Return how many successive steps a check compares."""
        return 1

    @classmethod
    def accelerator_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - overridden
        """Return the defaults on devices other than a CPU, for options that are given as values or as text."""
        return cls.accelerator

    @classmethod
    @abstractmethod
    def engine_options(cls, slots: int, positions: int) -> Mapping[str, Any]:
        """Return the options of an engine with so many slots, and positions in each: what `build_engine` gets."""

    @abstractmethod
    def logits(self, data: Data, tokens: np.ndarray) -> np.ndarray:
        """Return what the reference computes for the token that follows each of `tokens` [B, T]: [B, T, vocabulary]."""


def parameter_count_of(problem: Problem) -> int | None:
    """Return the number of trained parameters; None for a problem without any."""
    return problem.parameter_count() if isinstance(problem, HasParameters) else None


def memory_of(problem: Problem, mode: Mode, precision: str) -> Mapping[str, int]:
    """Return the bytes that a step holds at the same time; without parameters, those of inputs and results."""
    if isinstance(problem, HasParameters):
        return problem.memory(mode, precision)
    return {"inputs and results": problem.cost(mode, precision).bytes} if mode == "inference" else {}


def divided(problem: Problem, devices: int, parallel: Parallel) -> Problem:
    """Return a problem as several devices compute it together; on any number it is the same unless it `Divides`."""
    return problem.on(devices, parallel) if isinstance(problem, Divides) else problem


def phases_of(problem: Problem) -> Mapping[str, tuple[int, Problem]]:
    """Return the phases of which a step consists, by name: how often each runs, and the problem of it alone."""
    return problem.phases() if isinstance(problem, Generates) else {"step": (1, problem)}
