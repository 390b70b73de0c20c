"""Executing a program step by step: it writes events to a socket, and reads from it how many steps to run.

    program    ready          block          block               check, end
    tool              3 steps        9 steps        closes its side
                     |- timed -|    |- timed -|

An event is one line of JSON, and the number of steps one line of digits. What is recorded is the time from the number
to the answer, by the clock of this process: what the program says of its own time only has to agree with it.
"""

import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from benchmarker import Case, Counted, Figure, ToldCheck, TrialError
from benchmarker_problems.program import Program
from benchmarker_problems.program.execution import ProgramExecution
from benchmarker_problems.program.process import Started

DESCRIPTOR = "BENCHMARKER_FD"
"""The variable of the environment with the number of the descriptor that the program speaks through."""
MOST_LINE = 1 << 16
"""Most bytes of an event."""
LOOKS_S = 0.2
"""How often to look whether the program still runs while nothing is heard of it, s."""
CLOSED_S = 1.0
"""Longest time to wait for the end of a program that has closed its descriptor, s."""
SYNCS = 10
"""How often the time of a block without steps is measured."""
MOST_STEPS = 1 << 40
"""More steps than any program runs in a short time."""
CLOCK_NS, SLEW = 100_000, 1e-3
"""How much longer a block may be by the program's clock: its clock may be read earlier, and be slewed."""
UNTOLD, UNTOLD_NS = 0.1, 1_000_000
"""Largest share of a block that the program may leave out of its own time, and what it takes to be woken besides.

One block in which it leaves out no more is enough: others may have had to wait for a core.
"""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Real = Annotated[float, Meta(ge=0)]


class _Event(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=str.lower):
    """What a program says."""


class Ready(_Event, frozen=True):
    """It waits for the first number of steps."""


class Block(_Event, frozen=True):
    """So many steps are done, in so many ns by its own clock if it says so."""

    steps: Number
    duration_ns: Number | None = None


class Cost(_Event, frozen=True):
    """The work of one step: floating-point operations, bytes to or from memory, samples."""

    flops: Number | None = None
    bytes: Number | None = None
    samples: Annotated[int, Meta(ge=1, le=2**63 - 1)] = 1


class Check(_Event, frozen=True):
    """How an output compares with what it should be: its error and the largest that is right, or in a word."""

    error: Real | None = None
    bound: Real | None = None
    ok: bool | None = None
    output: str = "the output"

    def __post_init__(self) -> None:
        """Refuse a check that says nothing, or two things."""
        numbers = [number for number in (self.error, self.bound) if number is not None]
        if len(numbers) != (2 if self.ok is None else 0):
            raise ValueError("give error and bound, or ok")


class End(_Event, frozen=True):
    """There is nothing more to say."""


Event = Ready | Block | Cost | Check | End
_DECODER = msgspec.json.Decoder(Event, strict=False)
E = TypeVar("E", bound=_Event)


class Timed(NamedTuple):
    """A block, from outside and as the program says, ns."""

    steps: int
    duration_ns: int
    told_ns: int | None


class StepwiseExecution(ProgramExecution):
    """A program that is executed once, and runs its steps when it is told to."""

    stepwise = True

    def __init__(self, problem: Program, case: Case) -> None:
        super().__init__(problem, case)
        self._socket: socket.socket | None = None
        self._program: Started | None = None
        self._heard = b""
        self._lines: deque[bytes] = deque()
        self._blocks: list[Timed] = []
        self._cost = Cost()
        self._check: Check | None = None

    def prepare(self) -> None:
        """Do what comes before, start the program, and wait until it is ready."""
        super().prepare()
        with self._closing_on_failure():
            self._socket, theirs = socket.socketpair()
            self._socket.settimeout(LOOKS_S)
            with theirs:
                number = theirs.fileno()
                self._program = self._started({DESCRIPTOR: str(number)}, [number])
            while isinstance(event := self._hear("ready"), Cost):
                self._cost = event
            _expect(event, Ready, "ready")

    def counted(self) -> Counted:
        """Return the work of a step as the program says."""
        told = self._cost
        return Counted(told.flops, told.bytes, told.samples, source=None if told.flops is None else "program")

    def block(self, steps: int) -> int:
        """Let the program run so many steps; returns the time from the number to the answer, ns."""
        with self._closing_on_failure():
            if steps > MOST_STEPS:
                raise TrialError("the program answers at once, however many steps it is asked for")
            begun_ns = time.perf_counter_ns()
            self._tell(steps)
            line = self._line("block")
            duration_ns = time.perf_counter_ns() - begun_ns
            block = _expect(_event(line), Block, "block")
            if block.steps != steps:
                raise TrialError(f"the program was asked for {steps} steps, and says that it has run {block.steps}")
            self._blocks.append(Timed(steps, duration_ns, block.duration_ns))
        return duration_ns

    def sync_s(self) -> float:
        """Return the shortest time of a block without steps, s."""
        return min(self.block(0) for _ in range(SYNCS)) / 1e9

    def figures(self) -> Sequence[Figure]:
        """Let the program end, and return its figures; raises `TrialError` if it does not end as it should."""
        self._finish()
        return super().figures()

    def check(self) -> ToldCheck | str | None:
        """Return the check that the program made itself."""
        told = self._check
        if told is None:
            return None
        if told.error is not None and told.bound is not None:
            return ToldCheck(told.output, told.error, told.bound)
        if not told.ok:
            raise TrialError(f"the program says that {told.output} is wrong", "check")
        return f"the program says that {told.output} is right, without an error"

    def suspicions(self) -> Sequence[str]:
        """Return that the program says another time than it takes from outside, if it does."""
        told = [(block, block.told_ns) for block in self._blocks if block.told_ns is not None and block.steps]
        long = [pair for pair in told if pair[0].steps == self._blocks[-1].steps]
        for block, told_ns in told:
            if told_ns > block.duration_ns * (1 + SLEW) + CLOCK_NS:
                return [_unlike(told_ns, block)]
        if long and min(block.duration_ns * (1 - UNTOLD) - told_ns for block, told_ns in long) > UNTOLD_NS:
            return [_unlike(long[-1][1], long[-1][0])]
        return []

    def peak_rss_bytes(self) -> int | str:
        """Let the program end, and return the largest resident set of a process of it."""
        self._finish()
        return super().peak_rss_bytes()

    def _finish(self) -> None:
        """Close this side, hear what the program says at last, and wait for its end; does nothing if it has ended."""
        if self._program is None or self._socket is None:
            return
        with self._closing_on_failure():
            self._socket.shutdown(socket.SHUT_WR)
            while isinstance(event := self._hear("end"), Check):
                self._check = event
            _expect(event, End, "end")
            self._reap()

    def _reap(self) -> None:
        """Wait for the end of the program, and take it as an execution; raises `TrialError` if it failed."""
        if self._program is not None:
            program, self._program = self._program, None
            self._add(program.wait())

    def _close(self) -> None:
        """End the program if it still runs, and do what comes after."""
        try:
            if self._program is not None:
                program, self._program = self._program, None
                program.end()
                self._ended.append(program.wait())
            if self._socket is not None:
                self._socket.close()
        finally:
            super()._close()

    def _tell(self, steps: int) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(b"%d\n" % steps)
        except OSError:
            raise self._gone("it said 'block'") from None

    def _hear(self, awaited: str) -> Event:
        return _event(self._line(awaited))

    def _line(self, awaited: str) -> bytes:
        """Return the next line that the program writes; raises `TrialError` if it ends or closes its descriptor."""
        assert self._socket is not None
        while not self._lines:
            try:
                chunk = self._socket.recv(MOST_LINE)
            except TimeoutError:
                if self._program is None or self._program.is_running():
                    continue
                chunk = b""
            except OSError:
                chunk = b""
            if not chunk:
                raise self._gone(f"it said {awaited!r}")
            *lines, self._heard = (self._heard + chunk).split(b"\n")
            self._lines += [line for line in lines if line.strip()]
            if len(self._heard) > MOST_LINE:
                raise TrialError(f"the program wrote more than {MOST_LINE >> 10} KiB to {DESCRIPTOR} without an event")
        return self._lines.popleft()

    def _gone(self, what: str) -> TrialError:
        """Return why a program cannot be heard any more: how it ended, or that it closed its descriptor."""
        program = self._program
        assert program is not None
        deadline = time.monotonic() + CLOSED_S
        while program.is_running() and time.monotonic() < deadline:
            time.sleep(LOOKS_S / 20)
        if program.is_running():
            return TrialError(f"the program closed {DESCRIPTOR} before {what}")
        try:
            self._reap()
        except TrialError as error:
            return error
        hint = "" if self._blocks else "; leave --stepwise out if it is not made to be asked for steps"
        return TrialError(f"the program ended before {what}{hint}")


def _event(line: bytes) -> Event:
    """Return the event in a line; raises `TrialError` if it is none."""
    try:
        event: Event = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        said = line[:60].decode(errors="replace")
        raise TrialError(f"the program wrote {said!r} to {DESCRIPTOR}, which is no event: {error}") from error
    return event


def _expect(event: Event, kind: type[E], awaited: str) -> E:
    """Return an event of a kind; raises `TrialError` if it is another."""
    if not isinstance(event, kind):
        raise TrialError(f"the program said {type(event).__name__.lower()!r} where {awaited!r} was awaited")
    return event


def _unlike(told_ns: int, block: Timed) -> str:
    return (
        f"the program says that a block of {block.steps} steps took {told_ns / 1e6:.3g} ms, which takes "
        f"{block.duration_ns / 1e6:.3g} ms from outside"
    )
