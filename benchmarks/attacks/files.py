"""A record, plan, cost file, weights file, reference or bundle with random damage, for every command that reads it."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from pathlib import Path

from damage import damaged
from runs import RUN
from tally import Tally, attack, call

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


def attacks(count: int, rng: random.Random) -> Tally:
    """Give damaged files to the commands that read them."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        prepare()
        sound = {path: Path(path).read_bytes() for path in FILES}
        for path, commands in FILES.items():
            done = [call(tuple(word.format(path) for word in words)) for words in commands]
            assert any(status in (0, 1) for status, *_ in done), (path, done)  # a command must read it if it is sound
            shutil.rmtree("unpacked", ignore_errors=True)
        for _ in range(count):
            path = rng.choice([*FILES])
            content = damaged(sound[path], rng)
            for words in FILES[path]:
                Path(path).write_bytes(content)
                shutil.rmtree("unpacked", ignore_errors=True)
                attack(tuple(word.format(path) for word in words), f"{content[:200]!r}", tally)
            Path(path).write_bytes(sound[path])
    return tally


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
    Path("plan.toml").write_text('problem = "gemm"\ntrials = 2\nframework = "numpy"\n[axes]\nm = [8, 16]\n')
