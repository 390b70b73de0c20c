"""Read a record, and say so if a newer version of Benchmarker made it."""

import msgspec
from msgspec import Struct

from benchmarker.records.record import SCHEMA_VERSION, Record


class _Versioned(Struct):
    schema_version: int | None = None


def read(content: bytes) -> Record:
    """Decode the record in a file's content; raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode(content, type=Record)
    except msgspec.ValidationError:
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version is None:
            raise msgspec.ValidationError("not a record: it has no `schema_version`") from None
        if version > SCHEMA_VERSION:
            text = f"made by a newer version of benchmarker (schema {version}); update this one"
            raise msgspec.ValidationError(text) from None
        raise
