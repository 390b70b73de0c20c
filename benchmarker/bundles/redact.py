"""Redaction: pseudonyms for hosts and graphics cards, and no paths in messages, the same in every file of a bundle.

A pseudonym ends in the random part of a run's id. It means the same in all bundles that are packed together, and
nothing in others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarker.bundles.manifest import Redacted, Remark
from benchmarker.records import store
from benchmarker.records.record import Record

REDACTED = "left out by --redact"
_MESSAGES = {"message", "reasons", "variables", "missing", "notes", "left_out"}
"""Fields of a record or a plan whose texts come from the system, a driver or a framework."""
_QUOTED_PATH = re.compile(r"""(['"])(?:file://)?~?/[^'"\n]+\1""")
_PATH = re.compile(r"""(?<![\w.>/])(?:file://)?~?/[^\s'"`,;:()<>|\[\]{}]+""")
_UUID = re.compile(r"(?:GPU-|MIG-)?((?:[0-9a-f]{4}-?){2,})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """The pseudonyms of hosts, and of cards by the digits of their UUID, in the bundles that are packed together."""

    hosts: dict[str, str] = field(default_factory=dict)
    cards: dict[str, str] = field(default_factory=dict)


class Redactor:
    """Learns the hosts and the cards of a run from its records, then replaces them in its files."""

    def __init__(self, names: Pseudonyms) -> None:
        self._hosts, self._uuids = names.hosts, names.cards
        self._own_hosts: set[str] = set()
        self._own_cards: set[str] = set()
        self._trials: set[str] = set()
        self._changed = 0

    def learn(self, record: Record) -> None:
        """Give a pseudonym to each host and node of a record, and to each card in it."""
        suffix = record.run_id[-8:]
        self._trials.add(record.trial_id)
        machines = [record.machine, *record.machines]
        nodes = record.allocation.nodes if record.allocation else []
        for node in [*(machine.host for machine in machines), *nodes]:
            self._own_hosts.add(self._hosts.setdefault(node, f"host-{len(self._hosts) + 1}-{suffix}"))
        sensors = record.energy.sensors if record.energy else ()
        for uuid in (
            *(gpu.uuid for machine in machines for gpu in machine.gpus),
            *(device.uuid for device in [record.device] if device and device.uuid),
            *(sensor.id for sensor in (*sensors, *record.telemetry)),
        ):
            if digits := _UUID.fullmatch(uuid):
                card = self._uuids.setdefault(digits[1].lower(), f"card-{len(self._uuids) + 1}-{suffix}")
                self._own_cards.add(card)

    def withhold(self, sources: dict[str, Path | bytes], left_out: Sequence[Remark]) -> list[Remark]:
        """Take out all files but time series and JSON, which alone can be redacted; return all that is left out.

        What a job was submitted with is left out too: it names paths and hosts of its site. The names of files that
        belong to no trial are withheld too.
        """
        others = [
            path
            for path in sources
            if not path.endswith((".json", store.TELEMETRY)) or path.startswith((store.JOB, store.ATTEMPT))
        ]
        for path in others:
            del sources[path]
        remarks = [*left_out, *(Remark(path, REDACTED) for path in others)]
        strange = [remark.path for remark in remarks if ".".join(remark.path.split(".")[:2]) not in self._trials]
        names = {path: f"file {number}, whose name is withheld" for number, path in enumerate(sorted(strange), 1)}
        return [Remark(names.get(remark.path, remark.path), remark.reason) for remark in remarks]

    def content(self, source: Path | bytes) -> bytes:
        """Return the redacted content of a file; raises `UserError` if it is not what its name says."""
        if isinstance(source, bytes):
            return self._json(source)
        if source.name.endswith(store.TELEMETRY):
            from benchmarker.power import telemetry  # Arrow takes longer to import than everything else

            return telemetry.renamed(source, self._uuid)
        return self._json(source.read_bytes())

    def _json(self, content: bytes) -> bytes:
        redacted = self._walk(msgspec.json.decode(content), "", False)
        return msgspec.json.format(msgspec.json.encode(redacted), indent=1) + b"\n"

    @property
    def redacted(self) -> Redacted:
        """How much was replaced so far."""
        return Redacted(hosts=len(self._own_hosts), cards=len(self._own_cards), texts=self._changed)

    def _walk(self, value: Any, key: str, is_message: bool) -> Any:
        is_message = is_message or key in _MESSAGES
        if isinstance(value, dict):
            return {name: self._walk(item, name, is_message) for name, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, key if key == "nodes" else "", is_message) for item in value]
        if not isinstance(value, str):
            return value
        if key in ("host", "node", "nodes"):
            return self._hosts.get(value, value)
        return self._message(value) if is_message else self._uuid(value)

    def _message(self, text: str) -> str:
        redacted = _PATH.sub("<path>", _QUOTED_PATH.sub(r"\1<path>\1", self._uuid(text)))
        for host, pseudonym in self._hosts.items():
            redacted = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", pseudonym, redacted)
        self._changed += redacted != text
        return redacted

    def _uuid(self, text: str) -> str:
        for uuid, pseudonym in self._uuids.items():
            text = re.sub(re.escape(uuid), pseudonym, text, flags=re.IGNORECASE)
        return text
