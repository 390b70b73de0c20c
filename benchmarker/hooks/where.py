"""What `--where` selects, and what SQL says of records: of files, which are all read, and of archives, which are not.

A condition is NAME=VALUE[,VALUE...] of a factor, or SQL over the columns of `trials`: `problem = 'gpt2' AND m > 64`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault, as_json
from benchmarker.hooks.registry import needing
from benchmarker.hooks.sql import Hint, Rows, over_tables
from benchmarker.records import archive, archive_rows, store
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import chosen, factors_of, wanted_of
from benchmarker.records.record import Record
from benchmarker.records.sides import SIDE

_OF_FACTOR = re.compile(r"[\w.-]*(=(?![\s'=]).*)?", re.DOTALL)
"""NAME=VALUE, or a beginning of it; with a blank before the sign, or a blank or a quote after it, it is SQL."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_HINT = Hint("The tables are trials, blocks, scopes, kernels and records", "DESCRIBE trials lists the columns")
VIEWS = {
    "trials": "SELECT * EXCLUDE (duration_ns, scopes, kernels, sha256, record, part, row) FROM records",
    "blocks": """
        SELECT trial_id, case_id, problem, framework, device, node, started_s,
        unnest(range(len(duration_ns))) AS block, unnest(duration_ns) AS duration_ns,
        unnest(duration_ns) / steps_per_block / 1e9 AS step_time_s FROM records""",
    "scopes": """
        SELECT trial_id, case_id, problem, framework, device, node, started_s, unnest(scopes, recursive := true)
        FROM records""",
    "kernels": """
        SELECT trial_id, case_id, problem, framework, device, node, started_s, unnest(kernels, recursive := true)
        FROM records""",
}
"""The views that SQL has beside `records`, the table of all columns, which has a row for each trial."""


def query(results: Sequence[Path], statement: str) -> tuple[tuple[list[str], Rows], list[Fault]]:
    """Return the columns and rows that a statement returns over results, and every fault: one archive, or records.

    Raises `UserError` if the statement does not only read or is wrong, or if there are several archives.
    """
    if not any(map(archive.is_archive, results)):
        records, faults = store.read(results)
        return _over(_table(records), statement), faults
    if len(results) > 1:
        raise UserError("SQL reads one archive, or records; add the others to the archive first")

    def ask(parts: list[Path]) -> tuple[list[str], Rows]:
        return _over(archive_rows.dataset(parts) if parts else _table([]), statement)

    return archive_rows.over(results[0], archive.TRIALS, ask)


def _over(rows: pa.Table | ds.Dataset, statement: str) -> tuple[list[str], Rows]:
    with needing("trace", "SQL over records"):
        return over_tables({"records": rows}, statement, _HINT, VIEWS)


def _table(records: Sequence[Record]) -> pa.Table:
    """Return the rows of records that are not in an archive; raises `UserError` if one states no time."""
    try:
        return archive_rows.table_of(archive.TRIALS, [archive_rows.row_of(each, as_json(each)) for each in records])
    except ValueError as error:
        raise UserError(f"{error}; `benchmarker validate` names the record") from error


@dataclass(frozen=True)
class Conditions:
    """Conditions that all hold, as `--where` gives them."""

    words: Sequence[str]

    @cached_property
    def _factors(self) -> list[str]:
        return [word for word in self.words if _OF_FACTOR.fullmatch(word)]

    @cached_property
    def _sql(self) -> list[str]:
        return [f"({word})" for word in self.words if word not in self._factors]

    def places(self, parts: Sequence[Path]) -> archive_rows.Places:
        """Return the trials that may fit of parts of an archive; raises `UserError` if a condition is wrong."""
        fitting: dict[Path, list[int]] = {}
        if self._sql and parts:
            named = {part.stem: part for part in parts}
            places = f"SELECT part, row FROM records WHERE {' AND '.join(self._sql)} ORDER BY row"  # noqa: S608 - it only reads
            for part, row in _over(archive_rows.dataset(parts), places)[1]:
                fitting.setdefault(named[part], []).append(row)
        if not self._factors:
            return fitting
        wanted = [(name, values) for name, values in map(wanted_of, self._factors) if name != SIDE]  # of no trial
        found = archive_rows.places(
            [*fitting] if self._sql else parts, lambda factors: all(_has(factors, *each) for each in wanted)
        )
        if not self._sql:
            return found
        return {part: sorted({*rows} & {*fitting[part]}) for part, rows in found.items()}

    def fitting(self, several: Sequence[tuple[str, Sequence[Record]]]) -> list[list[Record]]:
        """Return the records of each side that fit.

        Raises `UserError` if a condition is wrong, if one of its values never holds, or if no record fits.
        """
        records = [record for _, of in several for record in of]
        known = [
            {**({SIDE: side} if len(several) > 1 else {}), **environment_of(record), **factors_of(record.case)}
            for side, of in several
            for record in of
        ]
        kept = chosen(self._factors, known) if self._factors and records else [True] * len(records)
        for word in self._sql:
            _, rows = _over(_table(records), f"SELECT trial_id FROM records WHERE {word}")  # noqa: S608 - it only reads
            ids = {trial_id for (trial_id,) in rows}
            kept = [before and each.trial_id in ids for before, each in zip(kept, records, strict=True)]
        if not any(kept):
            raise UserError(f"--where={' --where='.join(self.words)}: no record fits; `show` lists the cases")
        keep = iter(kept)
        return [[record for record in of if next(keep)] for _, of in several]


def _has(factors: Mapping[str, str], name: str, values: Sequence[str]) -> bool:
    """Whether a factor is one of several values, of which 1 and 1.0 are the same."""
    value = factors.get(name)
    if value is None or value in values:
        return value is not None
    return bool(_NUMBER.fullmatch(value)) and float(value) in {
        float(each) for each in values if _NUMBER.fullmatch(each)
    }
