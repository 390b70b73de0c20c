"""Load records as pandas data frames for further analysis."""

import math
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.hooks.metrics import Derive, load_metrics
from benchmarker.records import store
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import factors_of
from benchmarker.records.record import Record


def load(*results: str | PathLike[str]) -> pd.DataFrame:
    """Return one row per trial: requested factors, environment, status, and every metric in the unit of its name.

    A result is a record, the folder of a run, a folder of runs, or an archive. A value that could not be measured is
    NaN. A file that cannot be read is left out with a warning. Raises `UserError` if no record can be read.
    """
    return frame_of(_read(results), load_metrics([Path(result) for result in results]))


def frame_of(records: Iterable[Record], derive: Derive) -> pd.DataFrame:
    """Return one row per record, as `load` does."""
    rows = []
    for record in records:
        values = {name: math.nan if each.value is None else each.value for name, each in derive(record).items()}
        energy = record.energy
        sensed = {
            "energy_domains": ", ".join(energy.domains) if energy else "",
            "energy_flags": ", ".join(energy.flags) if energy else "",
        }
        rows.append({**_head(record), **factors_of(record.case), **environment_of(record), **values, **sensed})
    return pd.DataFrame(rows)


def load_blocks(*results: str | PathLike[str]) -> pd.DataFrame:
    """Return one row per timed block: the requested factors, the block's number, and its mean step time in seconds.

    Accepts the same results as `load` and raises the same errors. In a duet, `partner_first` states whether the
    partner's block ran first.
    """
    parts = []
    for record in _read(results):
        if record.blocks is None:
            continue
        step_s = [duration / record.blocks.steps_per_block / 1e9 for duration in record.blocks.duration_ns]
        columns: dict[str, Any] = {
            **_head(record),
            **factors_of(record.case),
            "block": range(len(step_s)),
            "step_s": step_s,
        }
        columns["partner_first"] = record.design.partner_first or [None] * len(step_s)
        parts.append(pd.DataFrame(columns))
    if not parts:
        raise UserError("no record has a timed block")
    return pd.concat(parts, ignore_index=True)


def load_events(result: str | PathLike[str]) -> pd.DataFrame:
    """Return the event table of a profiled record, one row per event; docs/traces.md describes its columns.

    `result` is a record, an event table, or a profiler's own file. Unknown values are missing (NA, NaN). Raises
    `UserError` if there is no trace.
    """
    from benchmarker.traces.events import with_missing
    from benchmarker.traces.profile_files import events_of  # Arrow is slow to import

    return with_missing(events_of(Path(result)))


def load_telemetry(result: str | PathLike[str]) -> pd.DataFrame:
    """Return the time series of a trial, one row per reading; docs/power.md describes its columns.

    `result` is a record or the time series file next to it. Raises `UserError` if there is no time series.
    """
    from benchmarker.power import telemetry

    path = Path(result)
    return telemetry.read(path.with_name(path.stem + store.TELEMETRY) if path.suffix == ".json" else path).readings


def _head(record: Record) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "trial_id": record.trial_id,
        "trial": record.trial,
        "started_at": record.started_at,
        "status": record.status,
        "error": record.error.kind if record.error else None,
        "suite": str(record.suite.id) if record.suite else None,
        "suite_case": record.suite.case if record.suite else None,
    }


def _read(results: tuple[str | PathLike[str], ...]) -> list[Record]:
    records, faults = store.read([Path(result) for result in results])
    for fault in faults:
        warnings.warn(f"left out: {fault}", stacklevel=3)
    if not records:
        raise UserError(f"there is no record to load in {', '.join(map(str, results))}")
    return records
