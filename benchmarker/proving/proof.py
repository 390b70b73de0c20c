"""The parent's side of a proof: start each claim, end it at its limit, keep what came of it, and go on."""

from __future__ import annotations

import subprocess
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from benchmarker import guard
from benchmarker.api.claim import Claim, Outcome, Proof, Verdict
from benchmarker.api.errors import UserError
from benchmarker.files import atomic
from benchmarker.formatting import clean, one_line
from benchmarker.hooks import registry
from benchmarker.machine.description import describe, utc_now
from benchmarker.records.record import Machine
from benchmarker.version import DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of a claim on a device, and how long it took, s."""

    name: str
    statement: str
    verdict: Verdict
    figure: str
    reason: str
    device: str
    seconds: float
    values: dict[str, float | None]

    @classmethod
    def of(cls, claim: Claim, outcome: Outcome, device: str, seconds: float) -> Entry:
        """Return the entry of an outcome; every text is one line without control characters."""
        return cls(
            name=claim.name,
            statement=claim.statement,
            verdict=outcome.verdict,
            figure=_line(outcome.figure),
            reason=_line(outcome.reason),
            device=device,
            seconds=round(seconds, 1),
            values=dict(outcome.values),
        )


class Summary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A proof as a whole: when and where it was made, with which versions, what came of each claim, what is left."""

    suite: str
    made_at: str
    machine: Machine
    versions: dict[str, str]
    entries: list[Entry]
    left: list[str]


def proofs() -> list[str]:
    """Return the names of the suites of claims."""
    return [plugin.name for plugin in registry.registered("suite").values()]


def load_proof(name: str) -> Proof:
    """Return the suite of claims at `suite.NAME`. Raises `UserError`."""
    found: Proof = registry.load([f"suite.{name}"]).hook.make_proof()
    return found


def prove(
    suite: str,
    folder: Path,
    device: str,
    *,
    seconds: float,
    again: Collection[str] = (),
    only: Collection[str] = (),
    say: Callable[[Entry | Claim], None],
) -> Summary:
    """Try the claims of a suite in their order; those that passed or failed before, by the folder, are not repeated.

    A claim begins only if its limit fits into what is left of `seconds`. `again` names claims to repeat, `only` the
    claims to try; each is told to `say` before and after. Each claim leaves `claims/NAME.json` and `claims/NAME.log`;
    the summary is `summary.json` and `summary.md`. Raises `UserError` if a name is unknown, if no claim can be tried
    here, or if the folder cannot be written.
    """
    proof = load_proof(suite)
    if proof.missing and (reason := proof.missing(device)):
        raise UserError(f"{suite} cannot run: {reason}")
    names = [claim.name for claim in proof.claims]
    for name in (*again, *only):
        if name not in names:
            raise UserError(f"{suite} has no test {name!r}; it has: {', '.join(names)}")
    wanted = [claim for claim in proof.claims if not only or claim.name in only]
    try:
        (folder / "claims").mkdir(parents=True, exist_ok=True)
        for name in again:
            (folder / f"claims/{name}.json").unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    end = time.monotonic() + seconds
    left = []
    for claim in wanted:
        known = _entry(folder, claim, device)
        if known and known.verdict != "not here":
            say(known)
        elif time.monotonic() + claim.limit_s > end:
            if known:
                say(known)
            else:
                left.append(claim.name)
        else:
            say(claim)
            say(_try(suite, claim, device, folder))
    entries = [entry for claim in proof.claims if (entry := _entry(folder, claim, device))]
    summary = Summary(
        suite=suite,
        made_at=utc_now(),
        machine=describe(),
        versions=_versions(proof.libraries),
        entries=entries,
        left=left,
    )
    atomic.write(folder / "summary.json", atomic.encode(summary))
    atomic.write(folder / "summary.md", as_markdown(summary).encode())
    return summary


def as_markdown(summary: Summary) -> str:
    """Return the summary as a page: the machine, the versions, and a table of the tests."""
    devices = [f"{gpu.name}, driver {gpu.driver}" for gpu in summary.machine.gpus] or [summary.machine.cpu.model]
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    lines = [f"# {summary.suite}: {devices[0]}", "", f"{summary.made_at}; {versions}.", ""]
    lines += ["| test | verdict | figure | s |", "| --- | --- | --- | --- |"]
    for entry in summary.entries:
        figure = "; ".join(filter(None, (entry.figure, entry.reason))).replace("|", "\\|")
        lines.append(f"| {entry.statement} (`{entry.name}`) | {entry.verdict} | {figure} | {entry.seconds:.0f} |")
    if summary.left:
        lines += ["", f"Not tried yet: {', '.join(summary.left)}."]
    return "\n".join(lines) + "\n"


def _try(suite: str, claim: Claim, device: str, folder: Path) -> Entry:
    """Run a claim to its end or its limit; whatever happens, there is an entry, unless this process is interrupted."""
    path, log, own = folder / f"claims/{claim.name}.json", folder / f"claims/{claim.name}.log", folder / claim.name
    own.mkdir(exist_ok=True)
    words = [suite, claim.name, device, str(own), str(path)]
    start = time.monotonic()
    with (
        log.open("wb") as output,
        guard.started(
            "benchmarker.proving", *words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            process.wait(claim.limit_s)
            why = f"it ended with status {process.returncode}{_last_line(log)}"
        except subprocess.TimeoutExpired:
            why = f"not finished after {claim.limit_s:.0f} s, its limit"
    if entry := _entry(folder, claim, device):
        return entry
    entry = Entry.of(claim, Outcome("FAIL", reason=f"{why}; see {log}"), device, time.monotonic() - start)
    atomic.write(path, atomic.encode(entry))
    return entry


def _entry(folder: Path, claim: Claim, device: str) -> Entry | None:
    """Return what is known of a claim on this device, or None."""
    try:
        entry = msgspec.json.decode((folder / f"claims/{claim.name}.json").read_bytes(), type=Entry)
    except (OSError, msgspec.DecodeError):
        return None
    return entry if entry.device == device else None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _line(text: Any) -> str:
    return clean(one_line(str(text)))[:500]


def _versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of benchmarker and of the libraries that are installed."""
    found = {}
    for name in (DISTRIBUTION, *libraries):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
