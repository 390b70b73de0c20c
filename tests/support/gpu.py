"""What a test on a GPU uses: the device, a folder for what it writes, and the command line, within a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarker import guard
from benchmarker.formatting import clean, one_line
from support.loops import Ratio

FRAMEWORKS = ("torch", "jax")
DESCRIBED: dict[str, list[dict[str, Any]]] = {}
"""What is listed for the matrix product, by device, once it was asked."""
STORING = ("run", "sweep", "ab", "--thorough")
"""Commands that store records, and the option with which `ceilings` does."""


@dataclass(frozen=True)
class Outcome:
    """The measured figure, what is wrong about it, and the numbers behind it, by name with unit."""

    figure: str = ""
    wrong: Sequence[str] = ()
    values: Mapping[str, float | None] = field(default_factory=dict)


class Tool:
    """Runs commands for one test on a device; each ends at the latest when the test's time limit is reached.

    What commands write goes to the test's folder, and their messages to `log.txt` in it.
    """

    def __init__(
        self, device: str, folder: Path, limit_s: float, record_property: Callable[[str, object], None]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.device, self.folder = device, folder.absolute()
        self.results = self.folder.parent / "results"
        """The records of all tests."""
        self._record = record_property
        self._limit_s, self._end = limit_s, time.monotonic() + limit_s

    @property
    def small(self) -> bool:
        """Whether sizes should suit a CPU: a rehearsal, which shows that every command works."""
        return self.device == "cpu"

    def judge(self, outcome: Outcome) -> None:
        """Record the figure, and fail if anything is wrong."""
        self._record("figure", clean(one_line(outcome.figure))[:500])
        self._record("values", dict(outcome.values))
        if outcome.wrong:
            pytest.fail(clean(one_line("; ".join(outcome.wrong))), pytrace=False)

    def note(self, *words: object) -> None:
        """Add a line to the log."""
        with (self.folder / "log.txt").open("a") as log:
            print(*words, file=log)

    def command(self, *words: str, **variables: str) -> Any:
        """Return the JSON that a command prints, run with some environment variables; fail if it ends without one.

        Records go to the folder that all tests share, unless `words` name another.
        """
        if {*words} & {*STORING} and not any(word.startswith("--results=") for word in words):
            words = (*words, f"--results={self.results}")
        status, output, messages = self.execute("benchmarker", *words, "--json", **variables)
        if status not in (0, 1):
            pytest.fail(f"`{' '.join(words[:3])} ...`: {_last_line(messages)}", pytrace=False)
        return json.loads(output)

    def execute(self, module: str, *words: str, **variables: str) -> tuple[int, str, str]:
        """Run a module in a process of its own; returns its exit status, its output and its messages."""
        self.note("$ python -m", module, *words)
        own = {"BENCHMARKER_CEILINGS": str(self.folder)}  # the user's ceilings stay as they are
        options = {"cwd": self.folder, "env": {**os.environ, **own, **variables}, "stdin": subprocess.DEVNULL}
        with guard.started(module, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
            try:
                output, messages = process.communicate(timeout=max(0.0, self._end - time.monotonic()))
                is_finished = True
            except subprocess.TimeoutExpired as expired:
                is_finished, messages = False, expired.stderr or b""
        self.note(messages.decode(errors="replace"))
        if not is_finished:
            pytest.fail(f"not finished after {self._limit_s:.0f} s, its limit", pytrace=False)
        return process.returncode, output.decode(errors="replace"), messages.decode(errors="replace")

    def run(self, *words: str) -> list[dict[str, Any]]:
        """Return the records of `run`."""
        records: list[dict[str, Any]] = self.command("run", f"--device={self.device}", *words)
        return records

    def compare(self, loop: str, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Ratio]:
        """Return the tool's time in each case divided by that of a loop in `support.loops`, in a process of its own.

        The memory of the device that the framework holds is free again afterwards.
        """
        path = os.pathsep.join(filter(None, sys.path))
        status, output, messages = self.execute("support.loops", loop, json.dumps(cases), PYTHONPATH=path)
        if status:
            pytest.fail(_last_line(messages), pytrace=False)
        ratios = {name: Ratio(**values) for name, values in json.loads(output.splitlines()[-1]).items()}
        self.note(*(f"{name} {ratio}\n" for name, ratio in ratios.items()))
        return ratios

    def precisions(self, framework: str) -> dict[str, list[str]]:
        """Return the precisions of the matrix product on the device, by mode.

        Skip the test if the framework is not installed or does not find the device; fail if it does not start.
        """
        if find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
        if self.device not in DESCRIBED:
            DESCRIBED[self.device] = self.command("describe", "gemm")["frameworks"]
        rows = [row for row in DESCRIBED[self.device] if row["framework"] == framework]
        if limits := [limit for row in rows if row["device"] == "-" for limit in row["limits"]]:
            pytest.fail("; ".join(limits), pytrace=False)
        modes = {row["mode"]: row["precisions"] for row in rows if row["device"] == self.device}
        if not modes:
            pytest.skip(f"{framework} finds no device of the platform {self.device}")
        return modes

    def framework(self) -> str:
        """Return the first framework that is installed and finds the device; skip the test if there is none."""
        reasons = []
        for name in FRAMEWORKS:
            try:
                self.precisions(name)
            except pytest.skip.Exception as reason:
                reasons.append(str(reason))
            else:
                return name
        pytest.skip("; ".join(reasons))

    def fast_precision(self, framework: str) -> str:
        """Return the precision in which the device is fast: bf16 if it is listed, else fp32."""
        return "bf16" if not self.small and "bf16" in self.precisions(framework)["inference"] else "fp32"


def completed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records; fail with the message of the first trial that failed."""
    for record in records:
        if record["error"]:
            case, message = record["case"], record["error"]["message"]
            pytest.fail(f"{case['framework']} {case['problem']} {case['precision']}: {message}", pytrace=False)
    return records


def metric(record: dict[str, Any], name: str) -> float | None:
    """Return the value of a derived metric."""
    value: float | None = record["metrics"][name]["value"]
    return value


def _last_line(messages: str) -> str:
    return (messages.strip().splitlines() or ["no message"])[-1]
