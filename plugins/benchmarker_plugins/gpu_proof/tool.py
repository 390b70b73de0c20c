"""Runs the command line for a claim, and reads what it prints."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from benchmarker import Claim, NotHereError, Outcome, Setting

FRAMEWORKS = ("torch", "jax")
MEASURING = ("run", "sweep", "ab", "--thorough")
"""Commands that store records, and the option with which `ceilings` does."""


def for_each(name: str, statement: str, limit_s: float, prove: Callable[..., Outcome]) -> tuple[Claim, ...]:
    """Return a claim for each framework; `{}` in the statement is its name, and `prove` takes it as `framework`."""
    return tuple(
        Claim(f"{name}-{each}", statement.format(each), limit_s, partial(prove, framework=each)) for each in FRAMEWORKS
    )


class ToolError(Exception):
    """The command line ended without a result; the text is its last line."""


def note(*words: object) -> None:
    """Write a line to the claim's log."""
    click.echo(" ".join(map(str, words)))


def results(setting: Setting) -> Path:
    """Return the folder for the records of all claims."""
    return setting.folder.absolute().parent / "results"


def tool(setting: Setting, *words: str, **variables: str) -> Any:
    """Return the JSON that a command prints, run with some environment variables. Raises `ToolError`.

    Its messages go to the claim's log, records to the folder that all claims share, unless `words` name another.
    """
    command = [sys.executable, "-m", "benchmarker", *words, "--json"]
    if {*words} & {*MEASURING} and not any(word.startswith("--results=") for word in words):
        command.append(f"--results={results(setting)}")
    note("$", *command[1:])
    own = {
        **os.environ,
        **variables,
        "BENCHMARKER_CEILINGS": str(setting.folder),
    }  # the user's ceilings stay as they are
    done = subprocess.run(command, cwd=setting.folder, env=own, capture_output=True, text=True, check=False)
    note(done.stderr)
    if done.returncode not in (0, 1):
        raise ToolError(f"`{' '.join(words[:3])} ...`: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout)


def run(setting: Setting, *words: str) -> list[dict[str, Any]]:
    """Measure with `run`; returns the records. Raises `ToolError`."""
    found: list[dict[str, Any]] = tool(setting, "run", f"--device={setting.device}", *words)
    return found


def completed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records. Raises `ToolError` with the message of the first trial that failed."""
    for record in records:
        if record["error"]:
            case = record["case"]
            raise ToolError(f"{case['framework']} {case['problem']} {case['precision']}: {record['error']['message']}")
    return records


def metric(record: dict[str, Any], name: str) -> float | None:
    """Return the value of a derived metric."""
    value: float | None = record["metrics"][name]["value"]
    return value


def need(setting: Setting, *frameworks: str) -> dict[str, dict[str, list[str]]]:
    """Return the precisions of GEMM's modes, by framework, on the device.

    Raises `NotHereError` if a framework is not installed or does not find the device, `ToolError` if it does not start.
    """
    for name in frameworks:
        if find_spec(name) is None:
            raise NotHereError(f"{name} is not installed")
    found = tool(setting, "describe", "gemm")["frameworks"]
    able: dict[str, dict[str, list[str]]] = {name: {} for name in frameworks}
    for each in found:
        if each["framework"] in able and each["device"] == "-":
            raise ToolError("; ".join(each["limits"]))
        if each["framework"] in able and each["device"] == setting.device:
            able[each["framework"]][each["mode"]] = each["precisions"]
    for name, modes in able.items():
        if not modes:
            raise NotHereError(f"{name} finds no device of the platform {setting.device}")
    return able


def fast(setting: Setting, framework: str) -> str:
    """Return the precision in which the device is fast: bf16 if it is listed, else fp32."""
    return "bf16" if not setting.small and "bf16" in need(setting, framework)[framework]["inference"] else "fp32"


def present(setting: Setting) -> list[str]:
    """Return the frameworks that are installed and find the device; raises `NotHereError` if there is none."""
    reasons = []
    found = []
    for name in FRAMEWORKS:
        try:
            need(setting, name)
            found.append(name)
        except NotHereError as reason:
            reasons.append(str(reason))
    if not found:
        raise NotHereError("; ".join(reasons))
    return found
