"""Results as cases: the trials that share all requested factors are grouped and named once, and handed on.

Of several folders, each is a side, and a case of each side is by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import overload

import msgspec

from benchmarker.files.atomic import Fault
from benchmarker.formatting import part, some
from benchmarker.hooks import names
from benchmarker.records import sides
from benchmarker.records.factors import Factors, factors_of
from benchmarker.records.record import Record
from benchmarker.records.sides import SIDE, Side
from benchmarker.records.store import Where

_LISTED = 3


@dataclass(frozen=True)
class Configuration:
    """The requested factors, and their trials; `side` is among the factors if there are several sides."""

    factors: Factors
    records: tuple[Record, ...]

    @cached_property
    def name(self) -> str:
        """Its name by itself: `GEMM 16×4096×4096 bf16 in jax on cuda`."""
        return names.name(self.factors)

    @cached_property
    def ok(self) -> tuple[Record, ...]:
        """Its successful trials."""
        return tuple(record for record in self.records if record.error is None)


@dataclass(frozen=True)
class Cases(Sequence[Configuration]):
    """The configurations of results in the order of the plans that they come from, and the files that were not read."""

    configurations: tuple[Configuration, ...]
    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Record]) -> Cases:
        """Group records by requested factors, each trial once."""
        groups: dict[bytes, list[Record]] = {}
        keys: dict[bytes, bytes] = {}
        once = {record.trial_id: record for record in records}
        for record in sorted(once.values(), key=lambda trial: (trial.run_id, trial.design.case_number, trial.trial_id)):
            case = msgspec.json.encode(record.case)
            if case not in keys:
                keys[case] = msgspec.json.encode(factors_of(record.case))
            groups.setdefault(keys[case], []).append(record)
        return cls(tuple(Configuration(factors_of(group[0].case), tuple(group)) for group in groups.values()))

    @classmethod
    def of_sides(cls, several: Sequence[Side], faults: Sequence[Fault] = ()) -> Cases:
        """Group trials by side and requested factors; the sides of a case are next to each other."""
        by_case: dict[bytes, list[Configuration]] = {}
        for side in several:
            for one in cls.of(side.records):
                factors = {SIDE: side.name, **one.factors} if len(several) > 1 else one.factors
                by_case.setdefault(msgspec.json.encode(one.factors), []).append(Configuration(factors, one.records))
        return cls(tuple(chain.from_iterable(by_case.values())), tuple(faults))

    @overload
    def __getitem__(self, index: int) -> Configuration: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Configuration, ...]: ...
    def __getitem__(self, index: int | slice) -> Configuration | tuple[Configuration, ...]:
        return self.configurations[index]

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """All trials, by configuration."""
        return tuple(chain.from_iterable(one.records for one in self))

    def mixed_machines(self) -> list[str]:
        """Describe for each side that the trials of a case come from several machines, in a line."""
        of_side: dict[str, list[list[str]]] = {}
        for one in self:
            hosts = list(dict.fromkeys(record.machine.host for record in one.records))
            of_side.setdefault(str(one.factors.get(SIDE, "")), []).append(hosts)
        lines = []
        for side, several in of_side.items():
            if mixed := [hosts for hosts in several if len(hosts) > 1]:
                every = list(dict.fromkeys(chain.from_iterable(mixed)))
                lines.append(
                    f"{side}: " * bool(side) + f"{part(len(mixed), len(several), 'case', 'mixes', 'mix')} trials of "
                    f"several machines: {some(every, _LISTED)}; `compare --by=host` tells them apart"
                )
        return lines


def read(results: Sequence[Path], *, pool: bool = False, where: Where | None = None) -> Cases:
    """Read results as cases of sides, of one if `pool`, with the trials that fit `where`.

    Raises `UserError` if two sides contain the same trial, or if none fits.
    """
    return Cases.of_sides(*sides.read(results, pool=pool, where=where))
