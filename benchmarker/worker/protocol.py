"""The messages between the parent and a worker, each one line of JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from benchmarker.api.case import Case, Mode
from benchmarker.api.fields import Count
from benchmarker.api.framework import FrameworkInfo
from benchmarker.api.metric import Figure
from benchmarker.api.problem import Support
from benchmarker.files.atomic import as_json
from benchmarker.formatting import clean
from benchmarker.power.sampler_client import SamplerLink
from benchmarker.records.machine import DeviceInfo
from benchmarker.records.record import (
    Blocks,
    Check,
    CostPart,
    DeviceTime,
    EventCount,
    Failure,
    Inputs,
    Interference,
    Local,
    Memory,
    Preheat,
    Rank,
    Seconds,
    TokenTimes,
    Types,
)


class Task(Struct, frozen=True, kw_only=True):
    """A task for a worker."""

    #: describe a framework, run a trial of a case, or a short one of each of several, profile, check or serve a case
    kind: Literal["describe", "trial", "survey", "check", "profile", "serve"]
    framework: str  #: name of the framework
    problem: str | None = None  #: the problem of which to describe what is supported
    cases: tuple[Case, ...] = ()  #: the case, the two of a duet, or those of a survey, each as in a record
    seed: int = 0  #: seed of the order in a duet and of the local phase
    rank: int = 0  #: which of several ranks the worker is
    peer_address: str = ""  #: over several nodes, the address of another one, as rank 0 reaches it
    modes: tuple[Mode, ...] = ()  #: the modes to check
    steps: int = 0  #: training steps whose losses are sent in a check
    required: int = 0  #: cases of a survey that are measured however long it takes
    most_s: float = 0.0  #: time after which a survey begins no other case, s
    folder: str = ""  #: where a profile is written, in a folder for each rank
    packages: str = ""  #: a folder of packages that come before those of this environment
    sensors: dict[str, SamplerLink] = {}  #: connections to samplers of meters, by meter
    spawned_s: float = 0.0  #: when the worker was started, by the monotonic clock, which processes share, s


def folder_of(folder: Path, rank: int) -> Path:
    """Return where the profile of a rank is written."""
    return folder / f"rank{rank}"


class Address(Struct, frozen=True):
    """Where rank 0 listens, and the token by which it knows the other ranks."""

    host: str
    port: int
    token: str


class GenerationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for text of these lengths, to a worker that serves; without any, the end of the request."""

    id: Count
    prompt_len: Count = 0
    new_tokens: Count = 0


class Command(Struct, frozen=True, kw_only=True):
    """What the parent commands a worker that runs."""

    address: Address | None = None  #: connect to rank 0 at this `host` and `port`, and show its `token`
    stacks: bool = False  #: write the stacks to the log, and send a `Position`
    #: answer a request `id` for text of `prompt_len` and `new_tokens` tokens; without any, its end
    request: GenerationRequest | None = None


class _Event(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, tag=True):
    """What a worker sends in a line; `of` is the number of the case in the process, None if it is about all of them."""

    of: Count | None = None


class StageBegan(_Event, frozen=True):
    """A stage of the task begins."""

    stage: str


class StageEnded(_Event, frozen=True):
    """A stage has ended, after so many seconds."""

    stage: str
    seconds: Seconds


class StepsDone(_Event, frozen=True):
    """So many steps, windows, blocks or requests are done in this stage; a step of the last one took `step_s`."""

    done: Count
    step_s: Seconds


class RecordPart(_Event, frozen=True, kw_only=True):
    """Fields of the record, each as in the record; `reasons` are those of its nulls, by path."""

    device: DeviceInfo | UnsetType = UNSET
    types: Types | UnsetType = UNSET
    libraries: dict[str, str] | UnsetType = UNSET
    variables: dict[str, str] | UnsetType = UNSET
    threads: Count | UnsetType | None = UNSET
    inputs: Inputs | UnsetType = UNSET
    build_s: Seconds | UnsetType = UNSET
    compile_s: Seconds | UnsetType = UNSET
    check: Check | UnsetType = UNSET
    preheat: Preheat | UnsetType = UNSET
    blocks: Blocks | UnsetType = UNSET
    ranks: list[Rank] | UnsetType = UNSET
    local: Local | UnsetType = UNSET
    device_time: DeviceTime | UnsetType = UNSET
    reasons: dict[str, str] | UnsetType = UNSET
    token_times: TokenTimes | UnsetType = UNSET
    cost: CostPart | UnsetType = UNSET
    memory: Memory | UnsetType = UNSET
    interference: Interference | UnsetType = UNSET
    counters: list[EventCount] | UnsetType = UNSET
    partner_first: list[bool] | UnsetType = UNSET
    figures: list[Figure] | UnsetType = UNSET
    suspicions: list[str] | UnsetType = UNSET

    def sent(self) -> dict[str, Any]:
        """Return the fields that are in it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "of"}
        return {name: value for name, value in fields.items() if value is not UNSET}

    def with_part(self, later: RecordPart) -> RecordPart:
        """Return both together; a field that both have is that of the later one."""
        reasons = {**(self.reasons or {}), **(later.reasons or {})}
        return msgspec.structs.replace(self, **{**later.sent(), "reasons": reasons or UNSET})


class Failed(_Event, frozen=True):
    """The trial has failed; what was sent before remains. Of a rank, maybe only because it has lost another."""

    failure: Failure
    lost_peer: bool = False


class Done(_Event, frozen=True):
    """Everything was sent, and nothing has failed."""


class Refused(_Event, frozen=True):
    """The task cannot be done, because of what the user asked for or what is missing here: one line."""

    message: str


class Listening(_Event, frozen=True):
    """Rank 0 waits for the other ranks at this address."""

    address: Address


class Position(_Event, frozen=True):
    """Where the main thread of a rank is; there it `waits` for others, or `synchronizes`, that is for its device."""

    place: str
    waits: bool
    synchronizes: bool


class Described(_Event, frozen=True):
    """What a framework is, and what it supports of the problem if the task has one."""

    info: FrameworkInfo
    support: Support | None


class Checked(_Event, frozen=True):
    """How a result compares with the reference, or why there is none; of several modes, in this one."""

    check: Check | str
    mode: Mode | None = None


class Losses(_Event, frozen=True):
    """The losses of training steps; null is one that is not finite, as JSON has no such number."""

    losses: list[float | None]


class Tokens(_Event, frozen=True):
    """A pass of an engine has given a token to each of these requests."""

    ids: list[Count]


Event = (
    StageBegan
    | StageEnded
    | StepsDone
    | RecordPart
    | Failed
    | Done
    | Refused
    | Listening
    | Position
    | Described
    | Checked
    | Losses
    | Tokens
)
"""All that a worker may send."""


_DECODER = msgspec.json.Decoder(Event)


class InvalidLineError(Exception):
    """A process sent what is not valid."""


def event_of(line: bytes) -> Event:
    """Return the event in a line. Raises InvalidLineError, with one line that names the field, if it is not valid."""
    with _decoding(line, "an event"):
        event: Event = _DECODER.decode(line)
        return event


def message_of(line: bytes, kind: Any) -> Any:
    """Return the message of a kind in a line. Raises InvalidLineError as `event_of` does."""
    with _decoding(line, "a message"):
        return msgspec.json.decode(line, type=kind)


@contextmanager
def _decoding(line: bytes, what: str) -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at ")
        raise InvalidLineError(f"{where.strip('`').removeprefix('$.') or what}: {text}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidLineError(f"a line that is not {what}: {clean(line[:80].decode(errors='replace'))}") from error


def lines(descriptor: int) -> Iterator[bytes]:
    """Yield whole lines from a descriptor; unlike a file, it holds no lock that would stop the interpreter's end."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


class Sender(Protocol):
    """What takes the events of a trial."""

    def send(self, event: Event) -> None:
        """Take one event."""


class Events:
    """The channel from the worker to the parent; with `of`, all events are about the case with this number."""

    def __init__(self, descriptor: int) -> None:
        self.of: int | None = None
        self._file = os.fdopen(descriptor, "wb")

    def send(self, event: Event) -> None:
        """Send one event."""
        if self.of is not None:
            event = msgspec.structs.replace(event, of=self.of)
        self._file.write(as_json(event) + b"\n")
        self._file.flush()
