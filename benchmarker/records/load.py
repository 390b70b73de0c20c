"""A load: requests sent to a text-generation server over time, with the raw times of each.

results/<run id>/load.json

Figures such as TTFT are derived from it when shown (`serving/latency.py`).
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError, attempt
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive, null_because
from benchmarker.files import atomic
from benchmarker.files.atomic import Fault, as_json
from benchmarker.files.locks import locked
from benchmarker.records.machine import DeviceInfo, Machine
from benchmarker.records.record import Check, Types
from benchmarker.records.store import LOAD

Arrivals = Literal["poisson", "bursts", "trace"]
FailureKind = Literal["refused", "status", "timeout", "cut", "invalid", "dropped"]
Seconds = Annotated[float, Meta(ge=0)]
Above = Annotated[float, Meta(gt=0)]
MOST_TOKENS = 10_000_000
"""Most tokens of a prompt or an answer that may be asked for."""


class Lengths(Struct, frozen=True, forbid_unknown_fields=True):
    """Lengths in tokens, drawn uniformly from `low` to `high`, both included."""

    low: Positive
    high: Positive

    def __post_init__(self) -> None:
        """Check the order; raises ValueError."""
        if self.low > self.high:
            raise ValueError(f"{self.low} is above {self.high}")

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


class Slo(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A service level objective: the longest times that a request may take, in s; None does not limit."""

    ttft_s: Annotated[Above | None, NULL_IS_AN_ANSWER] = None
    tpot_s: Annotated[Above | None, NULL_IS_AN_ANSWER] = None
    e2e_s: Annotated[Above | None, NULL_IS_AN_ANSWER] = None


class RequestFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a request has no whole answer."""

    kind: FailureKind
    message: str


class RequestOutcome(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request and its answer; times are in s since the start of its step, lengths in tokens.

    `arrival_s` is when it was planned to be sent, `sent_s` when the client began to send it, and `chunks_s` when each
    chunk with text arrived. The server counted `prompt_tokens` and `answer_tokens`; `prompt_len` and `new_tokens` are
    what it was asked for.
    """

    arrival_s: Seconds
    prompt_len: Positive
    new_tokens: Positive
    sent_s: Seconds
    chunks_s: list[Seconds]
    prompt_tokens: Annotated[Count | None, null_because("the server reported no usage")]
    answer_tokens: Annotated[Count | None, null_because("the server reported no usage")]
    failure: Annotated[RequestFailure | None, NULL_IS_AN_ANSWER] = None

    def __post_init__(self) -> None:
        """Check that nothing happened before its cause; raises ValueError."""
        times = [self.arrival_s, self.sent_s, *self.chunks_s]
        if times != sorted(times):
            raise ValueError("a request was sent before its time, or answered before it was sent")
        if not (self.chunks_s or self.failure):
            raise ValueError("neither a token nor a failure")


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Requests that arrived at one rate during `seconds`; fewer outcomes than `planned` if it was ended early."""

    rate_per_s: Annotated[Above | None, null_because("the arrivals are those of a trace file")]
    seconds: Seconds
    planned: Positive
    outcomes: Annotated[list[RequestOutcome], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Check the number of outcomes; raises ValueError."""
        if len(self.outcomes) > self.planned:
            raise ValueError("more outcomes than planned requests")


class EngineInfo(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The engine of a framework that answered the requests, and the check of its tokens at a small size."""

    case: Case
    device: DeviceInfo
    types: Types
    libraries: dict[str, str]
    variables: dict[str, str]
    threads: Annotated[Count | None, null_because("the framework cannot report it on this system")]
    slots: Positive
    positions: Positive
    check: Check


class Load(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a file of a load. `machine` is the client's; `share` of the requests is to meet the SLO.

    The requests went to a server at `endpoint`, or to an `engine`.

    `searched` states that the rates of the steps were chosen by bisection, to find the highest that meets it.
    """

    schema_version: Literal[1] = 1
    run_id: str
    benchmarker: str
    machine: Machine
    endpoint: Annotated[str | None, null_because("the requests went to the engine of a framework")]
    engine: Annotated[EngineInfo | None, NULL_IS_AN_ANSWER]
    model: str
    arrivals: Arrivals
    burst_size: Annotated[Positive | None, null_because("the arrivals are not bursts")]
    prompt_len: Annotated[Lengths | None, null_because("the lengths are those of a trace file")]
    new_tokens: Annotated[Lengths | None, null_because("the lengths are those of a trace file")]
    seed: Annotated[Count | None, null_because("the arrivals are those of a trace file")]
    prompts: Literal["ids", "words"]
    ignore_eos: bool
    timeout_s: Above
    slo: Annotated[Slo | None, NULL_IS_AN_ANSWER]
    share: Annotated[float, Meta(gt=0, lt=1)]
    searched: bool
    steps: list[Step]

    def __post_init__(self) -> None:
        """Check that something answered; raises ValueError."""
        if (self.endpoint is None) == (self.engine is None):
            raise ValueError("either an endpoint or an engine answers")


def read(path: Path) -> Load:
    """Read a file of a load, or the one in the folder of a run; raises `UserError` if it is invalid."""
    load = atomic.decode(path / LOAD if path.is_dir() else path, decode)
    if isinstance(load, Fault):
        raise UserError(f"cannot read {load}; name a {LOAD} that serve-load stored")
    return load


def is_load(result: Path) -> bool:
    """Whether a result is a file of a load, or the folder of its run."""
    return result.name == LOAD or (result / LOAD).is_file()


def under(result: Path) -> tuple[list[Load], list[Fault]]:
    """Read the loads at a result: a file of a load, the folder of a run, or a folder of runs; return the faults too."""
    files = sorted(result.rglob(LOAD)) if result.is_dir() else [result] if result.name == LOAD else []
    loads = [atomic.decode(file, decode) for file in files]
    return (
        [each for each in loads if isinstance(each, Load)],
        [each for each in loads if isinstance(each, Fault)],
    )


def decode(content: bytes) -> Load:
    """Decode the content of a file of a load; raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Load)


def write(results: Path, load: Load) -> Path:
    """Write a load to the folder of its run, replacing what was stored of it; return the path of the file.

    It has no line breaks, because there is a number for each token. Raises `UserError` if it cannot be written.
    """
    path = results / load.run_id / LOAD
    with attempt(f"cannot write to {results}", "name another folder with --results"):
        results.mkdir(parents=True, exist_ok=True)
        with locked(results, wait=True):  # else a run that starts could sweep the folder while it is empty
            path.parent.mkdir(exist_ok=True)
            atomic.write(path, as_json(load) + b"\n")
    return path
