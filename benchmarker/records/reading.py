"""Read records of this schema version and of all earlier ones."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from benchmarker.records.plan import with_strategy
from benchmarker.records.record import SCHEMA_VERSION, Record


class _Versioned(Struct):
    schema_version: int


def read(content: bytes) -> Record:
    """Decode the record in a file's content, of this schema version or an earlier one; raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode(content, type=Record)
    except msgspec.ValidationError:
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            text = f"made by a newer version of benchmarker (schema {version}); update this one"
            raise msgspec.ValidationError(text) from None
        if version not in range(1, SCHEMA_VERSION):
            raise
    try:
        return msgspec.convert(_upgraded(msgspec.json.decode(content, type=dict[str, Any]), version), Record)
    except (AttributeError, TypeError) as error:
        raise msgspec.ValidationError(f"not a record of schema version {version}: {error}") from error


def _upgraded(fields: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the fields of a record of an earlier version as those of the present one."""
    new = f"schema version {version} had none"
    reasons = {re.sub(r"^witnesses\b", "interference", path): why for path, why in fields.get("reasons", {}).items()}
    if version < 2:
        fields |= {"design": {}, "witnesses": None}
        reasons["interference"] = new
    if version < 3:
        fields |= {"trace": None, "scopes": [], "kernels": []}
        reasons["trace"] = new
    if version < 4:
        fields |= {"energy": None, "telemetry": [], "meters": []}
        reasons["energy"] = new
        if fields.get("device"):
            fields["device"]["pci"] = None
            reasons["device.pci"] = new
        if fields.get("witnesses"):
            fields["witnesses"]["temperature_C"] = None
            reasons["interference.temperature_C"] = new
    if version < 5:
        fields["interference"] = fields.pop("witnesses", None)
        if fields.get("design", {}).get("kind") == "blocks":
            fields["design"]["kind"] = "rounds"
        for meter in fields.get("meters", []):
            meter["unavailable"] = meter.pop("lacks", [])
    if version < 6:
        fields["suite"] = None
        reasons["suite"] = new
    if version < 7:
        fields.get("machine", {})["model"] = None
        reasons["machine.model"] = new
    if version < 8:
        fields["token_times"] = None
        reasons["token_times"] = new
    if version < 9:
        fields["ranks"] = []
    if version < 10:
        fields |= {"local": None, "allocation": None}
        if "case" in fields:
            fields["case"] = with_strategy(fields["case"])
        reasons |= {"local": new, "allocation": new}
    if version < 11:
        fields["machines"] = []
        for rank in fields["ranks"]:
            rank["node"] = 0
    return fields | {"schema_version": SCHEMA_VERSION, "reasons": reasons}
