"""Hostile names and values in the script of a job: they are refused, or they arrive as they are and run nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from job_files import PLAN, submitted_run
from tally import LONGEST_S, Tally, attack

from benchmarker.running import site

CANARY = "canary"
PIECES = (
    *("\n", "\n", "\r", "\t", "\v", "\x1b[2J", "\x85", "\u2028", "\udcff", "\x7f"),
    *("'", '"', "\\", "`", "$", "~", "*", "?", "!", "#", "%", "%j", "&", "|", ";", "<", ">", "(", ")", "{a,b}"),
    *(
        "$(touch canary)",
        "`touch canary`",
        ";touch canary;",
        "\ntouch canary\n",
        "'\ntouch canary #",
        "&& touch canary",
    ),
    *("\n#SBATCH --wrap=touch canary\n", "#SBATCH --uid=0", "--wrap=ls", "-", " ", "  ", "a", "é", "b c"),
)
"""What names and values are put together from; a canary that was touched has been injected."""
PLACES = ("results", "run", "working directory", "value", "prefix")
PROBE = '#!/bin/sh\nprintf "%s\\0" "$PWD" "$@" >"$PROBED"\n'
"""Instead of the program: it tells where it runs, and with which words."""


def attacks(count: int, rng: random.Random) -> Tally:
    """Put something hostile into a place of the script, and run the script that comes of it, without Slurm."""
    tally = Tally()
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            strike(rng.choice(PLACES), "".join(rng.choices(PIECES, k=rng.randint(1, 5))), tally)
    return tally


def strike(place: str, text: str, tally: Tally) -> None:
    """Let a script be made, and check it."""
    top = Path.cwd()
    Path("plan.toml").write_text(PLAN)
    Path("probe").write_text(PROBE)
    Path("probe").chmod(0o755)
    prefix = [str(top / "probe"), *([text] if place == "prefix" else [])]
    Path("site.toml").write_text(f"prefix = {json.dumps(prefix)}")
    os.environ[site.VARIABLE] = str(top / "site.toml")
    what, here, results = top / "plan.toml", top, top / (text if place == "results" else "results")
    options = ["-o", f"comment={text}"] if place == "value" else []
    if place == "run":
        what = submitted_run("slurm", None).rename(top / text)
    elif place == "working directory":
        here = top / text
        here.mkdir()
    words = ("submit", str(what), "--launcher=slurm", "--dry-run", "--json", f"--results={results}", *options)
    with contextlib.chdir(here):
        done = attack(words, ascii(text), tally)
    if done and done[0] == 0:
        script = json.loads(done[1])["script"]
        folder = what if place == "run" else Path(shlex.split(script.splitlines()[-1])[-1])
        expected = [str(here), *prefix[1:], sys.executable, "-m", "benchmarker", "plan", "run", str(folder)]
        told = {"output": str(folder / "job.log").replace("%", "%%"), **({"comment": text} if place == "value" else {})}
        if folder != what and folder.parent != results:
            tally.bad("injection", f"{place}: {text!a}: the folder is {folder}")
        if run(script) != expected:
            tally.bad("injection", f"{place}: {text!a}: {script}")
        if not told.items() <= directives(script).items():
            tally.bad("injection", f"{place}: {text!a}: {directives(script)}")
    if [*top.rglob(CANARY)]:
        tally.bad("injection", f"{place}: {text!a}")


def run(script: str) -> list[str]:
    """Run a script as Slurm would; return where it came to run its program, and with which words."""
    Path("job.sh").write_text(script)
    Path("probed").unlink(missing_ok=True)
    environment = {**os.environ, "PROBED": str(Path("probed").absolute())}
    subprocess.run(["bash", "job.sh"], env=environment, capture_output=True, timeout=LONGEST_S, check=False)
    probed = Path("probed").read_bytes() if Path("probed").exists() else b""
    return [os.fsdecode(word) for word in probed.split(b"\0")[:-1]]


def directives(script: str) -> dict[str, str]:
    """Return the options that sbatch reads from a script, as far as its rules are those of a shell."""
    options: dict[str, str] = {}
    for line in script.splitlines()[1:]:
        if not line.startswith("#"):
            break
        with contextlib.suppress(ValueError):  # an open quote, or more than one word
            (word,) = shlex.split(line.removeprefix("#SBATCH "))
            name, _, value = word.removeprefix("--").partition("=")
            options[name] = value
    return options
