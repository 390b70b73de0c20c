"""The record of a trial, built from its worker's events."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from benchmarker.api.case import Case
from benchmarker.api.launcher import Allocation
from benchmarker.api.problem import FUNCTION
from benchmarker.api.program import PROGRAM, is_program
from benchmarker.files.atomic import as_json
from benchmarker.formatting import one_line, shortened, si
from benchmarker.hooks import registry
from benchmarker.hooks.names import word
from benchmarker.machine import description
from benchmarker.planning.cases import command_line
from benchmarker.power import energy
from benchmarker.power.energy import Accounts, Timed
from benchmarker.power.samplers import Readings
from benchmarker.records.consistency import CLOCK_S
from benchmarker.records.factors import SOURCE, factors_of, label
from benchmarker.records.machine import Machine, SourceFile
from benchmarker.records.record import EMULATED, SCHEMA_VERSION, Design, Failure, FailureKind, Record, nulls, reason
from benchmarker.records.suite import TrialSuite
from benchmarker.version import __version__
from benchmarker.worker import perf_tests
from benchmarker.worker.launch import Environment
from benchmarker.worker.protocol import Done, Event, Failed, RecordPart, StageBegan, StageEnded

LONGEST = 40
"""Characters of what tells a case from the others of its run, in its title."""
_NAMED = ("framework", "problem", FUNCTION, SOURCE)
"""Factors that a title has anyway."""
SLEW = 1e-3
"""Largest share by which the clocks of two nodes run apart: each is slewed by at most 500 ppm (adjtimex(2))."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process to start: the case that it measures, the two of a duet or those of a survey; its place in the run."""

    run_id: str
    trial_ids: tuple[str, ...]
    cases: tuple[Case, ...]
    trial: int
    designs: tuple[Design, ...]
    suites: tuple[TrialSuite | None, ...] = ()
    seed: int = 0
    allocation: Allocation | None = None

    def title(self, differ: Collection[str]) -> str:
        """Return what runs in it, for display; `differ` are the factors in which the cases of the run differ."""
        return f"{' and '.join(dict.fromkeys(_name(case, differ) for case in self.cases))}, trial {self.trial}"


def _name(case: Case, differ: Collection[str]) -> str:
    """Return what runs, a framework and a problem or a command line, with its values of the factors that differ."""
    factors = factors_of(case)
    words = filter(None, (word(name, factors[name]) for name in differ if name in factors and name not in _NAMED))
    told = shortened(" ".join(words), LONGEST)
    if is_program(case.problem):
        return f"{one_line(case.problem.removeprefix(PROGRAM))} {told}".rstrip()
    head = (label(factors, [FUNCTION]) if FUNCTION in differ else "") or case.problem
    return f"{case.framework} {head} {told}".rstrip()


class RecordBuilder:
    """Collects a worker's events about one case, and makes the record of them."""

    def __init__(self, process: Process, number: int, environment: Environment) -> None:
        self.process = process
        self.number = number
        self.environment = environment
        self.case = process.cases[number]
        self.machine = description.describe()
        self.started_at = description.utc_now()
        self.machines: list[Machine] = []
        self.part = RecordPart()
        self.stages: dict[str, float] = {}
        self.stage = "start"
        self.done = False
        self.failure: Failure | None = None
        self.energy_account: Accounts | None = None
        self._energy_lost = ""

    def on_event(self, event: Event) -> None:
        """Process an event; with `of`, it is about the case with that number in the process, otherwise about all."""
        if event.of not in (None, self.number):
            if isinstance(event, Failed) and self.failure is None and self.process.designs[self.number].partner:
                self.fail("partner", f"the other case of the duet failed: {event.failure.message}")
        elif isinstance(event, StageBegan):
            self.stage = event.stage
        elif isinstance(event, StageEnded):
            self.stages[event.stage] = event.seconds
        elif isinstance(event, RecordPart):
            self.part = self.part.with_part(event)
            if self.part.device and self._uuids:
                device = msgspec.structs.replace(self.part.device, uuid=self._uuids[0])
                self.part = msgspec.structs.replace(self.part, device=device)
        elif isinstance(event, Failed):
            self.failure = self.failure or event.failure
        elif isinstance(event, Done):
            self.done = True

    @property
    def _uuids(self) -> tuple[str, ...]:
        """The UUIDs of the only GPUs that the worker can see, those of its devices; none if they are not known."""
        is_known = self.case.device == "cuda" and "CUDA_VISIBLE_DEVICES" in self.environment
        return tuple(self.environment["CUDA_VISIBLE_DEVICES"].split(",")) if is_known else ()

    def fail(self, kind: FailureKind, message: str, rank: int | None = None, node: str | None = None) -> None:
        """Store a failure that no event reported, and the rank that failed, and its node."""
        self.failure = Failure(kind, message, self.stage, rank=rank, node=node)

    def finish_energy(self, readings: Sequence[Readings | None]) -> None:
        """Add what the meters of each node read, None where it did not arrive; called after the worker has ended."""
        accounts = [self._account(node, one) for node, one in enumerate(readings)]
        if len(accounts) == 1:
            (self.energy_account,) = accounts
        else:
            assert self.process.allocation is not None
            self.energy_account = energy.sum_over_nodes(self.process.allocation.nodes[: len(accounts)], accounts)

    def _account(self, node: int, readings: Readings | None) -> Accounts:
        """Return the energy parts of a node, whose devices are known by the cards it shows, or of the first by name."""
        blocks, cost, device = self.part.blocks, self.part.cost, self.part.device
        timed = None
        if blocks and cost and device:
            if readings is None:
                return Accounts(None, [], [], {"energy": "the readings of its meters did not arrive"})
            steps = len(blocks.duration_ns) * blocks.steps_per_block
            uuid, *others = (readings.cards or self._uuids) or (device.uuid if node == 0 else None,)
            timed = Timed(
                platform=device.platform,
                uuid=uuid,
                pci=device.pci if node == 0 else None,
                steps=steps,
                samples=steps * cost.samples,
                step_s=median(blocks.duration_ns) / blocks.steps_per_block / 1e9,
                devices=self.case.devices // self.case.nodes,
                others=tuple(filter(None, others)),
            )
        sampled, rest_ns = (readings.sampled, readings.rest_ns) if readings else ([], (0, 0))
        return energy.compute_energy(sampled, timed, rest_ns, 1 / self.case.measuring.power_hz)

    def record(self, wall_s: float, status: int | None) -> Record:
        """The record of the trial; `status` is the exit status of its worker.

        What cannot be stored is left out, with the reason: first what the meters gave, then everything measured.
        """
        try:
            return self._record(wall_s, status)
        except msgspec.ValidationError as error:
            if self.energy_account:
                self._energy_lost = f"the readings of its meters cannot be stored: {error}"
                self.energy_account = None
        try:
            return self._record(wall_s, status)
        except msgspec.ValidationError as error:
            self.fail("exception", f"the measurement cannot be stored: {error}")
            self.part, self.stages, self._energy_lost = RecordPart(), {}, ""
        return self._record(wall_s, status)

    def _record(self, wall_s: float, status: int | None) -> Record:
        """Make the record; raises msgspec.ValidationError if it would not be read back."""
        case, sent, failure = self.case, self.part.sent(), self.failure
        if failure and failure.exit is None:  # that of a program is there
            failure = msgspec.structs.replace(failure, exit=status)
        fields: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.process.run_id,
            "trial_id": self.process.trial_ids[self.number],
            "trial": self.process.trial,
            "started_at": self.started_at,
            "command": perf_tests.command(case.problem) or command_line(case),
            "case": case,
            "suite": self.process.suites[self.number] if self.process.suites else None,
            "design": msgspec.structs.replace(
                self.process.designs[self.number], partner_first=sent.get("partner_first", [])
            ),
            "status": "failed" if self.failure else "ok",
            "error": failure,
            "machine": self.machines[0] if self.machines else self.machine,
            "machines": self.machines,
            "allocation": self.process.allocation,
            "software": {
                "python": description.python_version(),
                "benchmarker": __version__,
                "commit": description.commit(),
                "libraries": sent.get("libraries", {}),
                "variables": sent.get("variables", {}),
                "threads": sent.get("threads"),
            },
            "source": _source(case),
            "harness": {"wall_s": wall_s, "stages_s": self.stages},
        }
        for name in _MEASURED:
            fields[name] = sent.get(name)
        fields |= {
            "ranks": sent.get("ranks", []),
            "figures": sent.get("figures", []),
            "counters": sent.get("counters", []),
            "suspicions": [*sent.get("suspicions", []), *self._suspicions(wall_s)],
            "trace": None,
            "scopes": [],
            "kernels": [],
        }
        account = self.energy_account
        fields["energy"] = account.energy if account else None
        fields["telemetry"] = account.telemetry if account else []
        fields["meters"] = account.meters if account else []
        fields = msgspec.to_builtins(fields)
        fields["reasons"] = {path: self._reason(path) for path in nulls(fields)}
        return msgspec.json.decode(as_json(fields), type=Record)

    def _suspicions(self, wall_s: float) -> list[str]:
        """Return that blocks take longer than the process, by the clock of this one, had for them besides its stages.

        When an event is read says less: this process may be late to read that the blocks begin, or be stopped.
        """
        blocks_s = sum(self.part.blocks.duration_ns) / 1e9 if self.part.blocks else 0.0
        left_s = wall_s - sum(seconds for name, seconds in self.stages.items() if name != "timed")
        if blocks_s <= left_s + CLOCK_S + SLEW * wall_s:
            return []
        return [f"its blocks take {si(blocks_s, 's')}, but its process had {si(max(0.0, left_s), 's')} for them"]

    def _reason(self, path: str) -> str:
        """Why the value at `path` is null: what the meters reported, the stage that failed, or the declared reason."""
        if self.case.is_emulated and not self.failure and path in (*_MEASURED, "energy", "trace"):
            return EMULATED
        if self.energy_account and path in self.energy_account.reasons:
            return self.energy_account.reasons[path]
        if self._energy_lost and path == "energy":
            return self._energy_lost
        if self.part.reasons and path in self.part.reasons:
            return self.part.reasons[path]
        section, field = path.partition(".")[0], path.rpartition(".")[2]
        sent_by_worker = section in (*_MEASURED, "energy") or path == "software.threads"
        if self.failure and sent_by_worker and not {section, field} & self.part.sent().keys():
            skipped = self.failure.kind == "skipped"
            return "it was not started" if skipped else f"the trial failed in stage {self.failure.stage!r}"
        return reason(path, self.case)


def _source(case: Case) -> SourceFile | None:
    """Return the user's file that a case measures, None if it is a plugin."""
    if not case.source:
        return None
    file = registry.source_file(case.problem)
    return SourceFile(case.problem, case.source, description.commit_of(file) if file else None)


_MEASURED = (
    "device",
    "types",
    "inputs",
    "build_s",
    "compile_s",
    "check",
    "preheat",
    "blocks",
    "local",
    "device_time",
    "token_times",
    "cost",
    "memory",
    "interference",
)
"""Parts of the record that the worker sends."""
