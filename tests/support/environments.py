"""Environments in which the wheel is installed; what several have in common is installed and compiled once."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

JUDGES = ("suite check", "suite accept")
"""Commands that may end with status 1: other work on the machine disturbs trials."""


def clone(venv: Path, new: Path) -> None:
    """Copy an environment by hard links: pip and Python replace the files that they change, and write into none."""
    shutil.copytree(venv, new, symlinks=True, copy_function=os.link)
    for file in (new / "pyvenv.cfg", *(new / "bin").iterdir()):
        if not file.is_symlink():
            text, mode = file.read_bytes(), file.stat().st_mode
            file.unlink()
            file.write_bytes(text.replace(bytes(venv), bytes(new)))
            file.chmod(mode)


class Environment:
    """An environment in which the wheel is installed, and an empty folder in which its commands run."""

    def __init__(self, folder: Path, start: Path | None = None) -> None:
        """Start with nothing installed, or with what is installed in the environment in another folder."""
        self.python, self.work = folder / "venv" / "bin" / "python", folder / "work"
        self.work.mkdir(parents=True)
        if start:
            clone(start / "venv", folder / "venv")
        else:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BENCHMARKER"))}
        self.variables = {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}

    def install(self, *words: str | Path) -> None:
        """Install with pip; compiling each module beforehand takes longer than all of the commands' imports."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install"]
        options = ["--quiet", "--no-compile", "--only-binary=:all:"]
        subprocess.run([*pip, *options, *words], check=True, cwd=self.work)

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line of the installed program."""
        words = [self.python.with_name("benchmarker")]
        for word in shlex.split(line):
            words += sorted(self.work.glob(word))[:1] if "*" in word and " " not in word else [word]
        return subprocess.run(
            words,
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )

    def succeed(self, lines: str) -> None:
        """Run command lines, each of which ends well."""
        for line in lines.strip().splitlines():
            done = self.run(line)
            well = (0, 1) if line.startswith(JUDGES) else (0,)
            assert done.returncode in well and "Traceback" not in done.stderr, f"{line}\n{done.stdout}{done.stderr}"
            assert "has no profile" not in done.stderr, done.stderr
