"""Weights of cases in a score (docs/procurement.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from benchmarker.api.errors import UserError, concerning
from benchmarker.files import toml
from benchmarker.planning import suites
from benchmarker.records.factors import Factors, selects, take_match, why_none


class Weight(Struct, frozen=True):
    """The weight of cases with these factors; 0 leaves them out of the mean."""

    match: dict[str, Any]
    weight: Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights by factors; the first entry that matches a case applies, and other cases have weight 1."""

    entries: tuple[Weight, ...] = ()

    def of(self, factors: Factors) -> float:
        """Return the weight of a case with these factors."""
        entry = self._entry(factors)
        return 1.0 if entry is None else entry.weight

    def _entry(self, factors: Factors) -> Weight | None:
        return next((entry for entry in self.entries if selects(entry.match, factors)), None)

    def unused(self, several: Sequence[Factors]) -> list[str]:
        """Return a line for each entry that applies to no case, with the reason."""
        used = [self._entry(factors) for factors in several]
        lines = []
        for weight in self.entries:
            if not any(weight is entry for entry in used):
                shadowed = any(selects(weight.match, factors) for factors in several)
                why = "an entry before it matches first" if shadowed else why_none(weight.match, several)
                lines.append(f"the weight {weight.weight:g} applies to no case: {why}")
        return lines


def read(path: Path) -> Weights:
    """Read the weights in a file, or those of the suite with this name.

    Raises `UserError` naming the file and the key if the file is not valid.
    """
    if not path.exists():
        path = suites.weights(str(path)) or path
    file = toml.load(path)
    with concerning(path):
        tables = toml.take("weight", file.pop("weight", []), list[dict[str, Any]])
        if file:
            raise UserError(f"{next(iter(file))} is not a key of this file; write [[weight]] tables")
        entries = []
        for number, table in enumerate(tables, 1):
            name = f"weight {number}"
            entry = toml.take_table(name, table, Weight)
            entries.append(Weight(take_match(f"{name}.match", entry.match), entry.weight))
        if not entries:
            raise UserError("it has no [[weight]]")
    return Weights(tuple(entries))
