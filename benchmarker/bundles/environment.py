"""What the trials of a run ran on: each distinct machine, software and device once, with its trials."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from benchmarker.records.record import Record

_CHANGING = {"load_average_1min", "steal_percent", "swap_used_bytes"}
"""Properties of a machine that change from trial to trial."""


class Environment(Struct, frozen=True):
    """The distinct machines, software and devices of a run, each with the trials that ran on it."""

    machine: list[dict[str, Any]] = []
    software: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []

    def add(self, record: Record) -> None:
        """Add what a trial ran on, without properties such as load, which change from trial to trial."""
        for part, groups in (("machine", self.machine), ("software", self.software), ("device", self.device)):
            value = msgspec.to_builtins(getattr(record, part))
            if value is None:
                continue
            if part == "machine":
                value = {name: each for name, each in value.items() if name not in _CHANGING}
                value["gpus"] = [{n: each for n, each in gpu.items() if n != "processes"} for gpu in value["gpus"]]
            for group in groups:
                if group[part] == value:
                    group["trials"].append(record.trial_id)
                    break
            else:
                groups.append({"trials": [record.trial_id], part: value})
