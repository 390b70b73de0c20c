"""Attack the tool with kills, signals and damaged files, and count what should never happen.

    python benchmarks/attacks [--kills=40] [--signals=20] [--files=2000] [--seed=1]

- kills: a run is killed at a random time, and resumed. Lost: a trial whose record is missing, doubled or not valid.
- signals: the same with SIGINT, SIGTERM and SIGHUP.
- files: a record, plan, cost file, weights file, reference or bundle with random damage, given to every command that
  reads it. Each must end by itself, without a traceback, with status 0, 1 or 2.

The status is 1 if anything was counted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarker.cli import main
from benchmarker.records import store

TRIALS = 3
RUN = (
    *("run", "--framework=numpy", "--problem=gemm", "--m=64", "--n=64", "--k=64"),
    *("--blocks=3", "--power=none", "--results=r", f"--trials={TRIALS}"),
)
LONGEST_S = 60
COSTS = """currency = "EUR"
electricity_price_per_kWh = 0.25
pue = 1.3
lifetime_years = 5
utilisation = 0.7
price = 250000
power_W = 500
[side.baseline]
[side.contender]
"""
WEIGHTS = '[[weight]]\nmatch = { problem = "gemm" }\nweight = 0.5\n'
FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "record.json": (
        *(("show", "{}"), ("validate", "{}"), ("compare", "{}", "a"), ("suite", "score", "{}", "a"), ("pareto", "{}")),
        *(
            ("roofline", "{}"),
            ("profile", "kernels", "{}"),
            ("telemetry", "{}"),
            ("suite", "accept", "{}", "--reference=reference.toml"),
        ),
    ),
    "a/plan.json": (
        ("validate", "a"),
        ("suite", "score", "a", "b"),
        (*RUN[:-2], "--results=a", "--resume", "--trials=1"),
    ),
    "cost.toml": (("suite", "score", "a", "b", "--cost={}"),),
    "weights.toml": (("suite", "score", "a", "b", "--weights={}"),),
    "reference.toml": (("suite", "accept", "a", "--reference={}"),),
    "plan.toml": (("plan", "show", "{}"),),
    "a.zip": (("bundle", "verify", "{}"), ("bundle", "unpack", "{}", "--to=unpacked")),
}
NUMBERS = (0, -1, 1, 2**63, 10**400, 1e308, 5e-324)
VALUES: tuple[Any, ...] = (*NUMBERS, True, None, "", "x" * 300, "\x1b[2J", "../..", [], {}, [[]] * 9)


@dataclass
class Tally:
    """What was tried, and what should never happen."""

    attacks: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def bad(self, what: str, detail: str) -> None:
        """Count one, and print how it was found."""
        self.found[what] += 1
        click.echo(f"{what}: {detail}", err=True)


def strike(folder: Path, number: int, after_s: float, tally: Tally) -> None:
    """Send a signal to a run after some time; then nothing may be left running, and the run can be resumed."""
    tally.attacks += 1
    command = [sys.executable, "-m", "benchmarker"]
    with subprocess.Popen(
        [*command, *RUN], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        time.sleep(after_s)
        started = []
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(number)
        try:
            _, said = run.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            run.kill()
            tally.bad("hang", f"signal {number} after {after_s:.3f} s")
            return
    where = f"signal {number} after {after_s:.3f} s"
    if "Traceback" in said:
        tally.bad("traceback", f"{where}: {said.strip().splitlines()[-1]}")
    _, alive = psutil.wait_procs(started, timeout=5)
    for each in alive:
        tally.bad("orphan", f"{where}: {each}")
        each.kill()
    if [*folder.glob("r/*/plan.json")]:
        again = subprocess.run(
            [*command, *RUN, "--resume"], cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        if again.returncode and "no unfinished run" not in again.stderr:
            tally.bad("lost", f"{where}: resume ended with {again.returncode}: {again.stderr.strip()[-300:]}")
        records, faults = store.read([folder / "r"])
        if faults or sorted(record.trial for record in records) != list(range(TRIALS)):
            tally.bad("lost", f"{where}: {[record.trial for record in records]} {faults}")
        if left := list(folder.glob("r/*/.*")):
            tally.bad("left lying", f"{where}: {left}")


def strikes(count: int, numbers: tuple[int, ...], rng: random.Random) -> Tally:
    """Strike runs at random times, from their first moment until they have ended."""
    tally = Tally()
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name:
            strike(Path(name), rng.choice(numbers), rng.uniform(0.05, 4.0), tally)
    return tally


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return content with random damage: bytes changed, cut, doubled or inserted, or a value of JSON replaced."""
    how = rng.choice(("flip", "cut", "double", "insert", "value", "value", "value"))
    at = rng.randrange(len(content))
    if how == "value" and content[:1] == b"{":
        plain = json.loads(content)
        part, key = rng.choice([*places(plain)])
        part[key] = rng.choice(VALUES)
        return json.dumps(plain).encode()
    if how == "cut":
        return content[:at]
    if how == "double":
        return content[:at] + content[at // 2 :]
    if how == "insert":
        return content[:at] + rng.choice((b"\0", b"\xff" * 9, b"{", b"9" * 400, b"\n" * 9)) + content[at:]
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def places(part: object) -> Iterator[tuple[Any, str | int]]:
    """Yield each place of a value in JSON."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield part, key
        yield from places(value)


def call(words: tuple[str, ...]) -> tuple[int | str | None, str]:
    """Run a command in this process; return its status, and what it wrote to standard error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main(list(words))
        except SystemExit as end:
            return end.code, said.getvalue()
    return None, said.getvalue()


def files(count: int, rng: random.Random) -> Tally:
    """Give damaged files to the commands that read them."""
    tally = Tally()

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        prepare()
        sound = {path: Path(path).read_bytes() for path in FILES}
        for _ in range(count):
            path = rng.choice([*FILES])
            content = damaged(sound[path], rng)
            for words in FILES[path]:
                Path(path).write_bytes(content)
                shutil.rmtree("unpacked", ignore_errors=True)
                attack(tuple(word.format(path) for word in words), content, tally)
            Path(path).write_bytes(sound[path])
    return tally


def attack(words: tuple[str, ...], content: bytes, tally: Tally) -> None:
    """Run a command on damaged content."""
    tally.attacks += 1
    signal.alarm(LONGEST_S)
    try:
        status, _ = call(words)
    except TimeoutError:
        tally.bad("hang", f"{words}: {content[:200]!r}")
    except BaseException as error:  # noqa: BLE001 - whatever it is, a user would see its traceback
        tally.bad("traceback", f"{words}: {error!r}")
        Path(tempfile.gettempdir(), f"attack-{words[0]}-{tally.attacks}").write_bytes(content)
    else:
        if status not in (0, 1, 2):
            tally.bad("status", f"{words}: {status}")
    finally:
        signal.alarm(0)


def prepare() -> None:
    """Make sound files in the current folder."""
    for side in ("a", "b"):
        call((*RUN[:-2], f"--results={side}", "--trials=3"))
        (run,) = Path(side).iterdir()
        for path in run.iterdir():
            path.rename(Path(side, path.name))
        run.rmdir()
    call(("suite", "accept", "a", "--write=reference.toml"))
    call(("bundle", "create", "a", "--output=a.zip"))
    Path("record.json").write_bytes(min(Path("a").glob("2*.json")).read_bytes())
    Path("cost.toml").write_text(COSTS)
    Path("weights.toml").write_text(WEIGHTS)
    Path("plan.toml").write_text('problem = "gemm"\ntrials = 2\nframework = ["numpy"]\n[gemm]\nm = [8, 16]\n')


@click.command(help=__doc__)
@click.option("--kills", default=40, show_default=True)
@click.option("--signals", default=20, show_default=True)
@click.option("--files", "damages", default=2000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def program(kills: int, signals: int, damages: int, seed: int) -> None:
    """Run all attacks, and print a line for each kind."""
    rng = random.Random(seed)
    kinds: dict[str, Callable[[], Tally]] = {
        "kills": lambda: strikes(kills, (signal.SIGKILL,), rng),
        "signals": lambda: strikes(signals, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), rng),
        "files": lambda: files(damages, rng),
    }
    columns = ("traceback", "hang", "orphan", "lost", "left lying", "status")
    click.echo("  ".join(("kind   ", "attacks", *columns)))
    bad = 0
    for kind, run in kinds.items():
        tally = run()
        counts = [f"{tally.found[column]:{len(column)}}" for column in columns]
        click.echo("  ".join((f"{kind:8}", f"{tally.attacks:7}", *counts)))
        bad += tally.found.total()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    os.environ["BENCHMARKER_CEILINGS"] = tempfile.mkdtemp()
    program()
