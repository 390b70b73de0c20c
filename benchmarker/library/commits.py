"""Commits of a git repository, each in a worktree of its own and built once; the user's checkout is never touched."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarker import guard
from benchmarker.api.errors import UserError
from benchmarker.files import atomic
from benchmarker.formatting import one_line

BUILDS = ".builds"
"""The folder of all checkouts and builds below that of records; it is hidden, so that no file in it is read as one."""
NOT_FOUND = (126, 127)
"""Exit statuses of a shell that cannot execute a command (POSIX, 2.8.2)."""


class BuildError(Exception):
    """A commit cannot be built."""


class Commit(msgspec.Struct, frozen=True):
    """A commit: its full hash and the first line of its message."""

    sha: str
    subject: str

    def __str__(self) -> str:
        return f"{self.sha[:12]} {self.subject}"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit that is checked out and built: its files, and the virtual environment of its build, if it has one."""

    tree: Path
    env: Path | None

    @property
    def packages(self) -> str:
        """The folder of the packages that the build installed; empty without a build."""
        return str(_packages(self.env)) if self.env else ""

    @property
    def installed(self) -> bool:
        """Whether the build installed a package, by its metadata."""
        return bool(self.env) and any(Path(self.packages).glob("*.dist-info"))


class _Built(msgspec.Struct, frozen=True):
    """How a build ended: empty, or why it failed."""

    error: str


class Repository:
    """A git repository; raises `UserError` if git or the repository is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if shutil.which("git") is None:
            raise UserError("git is not installed; install it")
        try:
            self.top = Path(self._git("rev-parse", "--show-toplevel"))
        except subprocess.CalledProcessError:
            raise UserError(f"{folder.absolute()}: not a git repository") from None

    def between(self, good: str, bad: str) -> list[Commit]:
        """Return the commits from good to bad, both with them, along first parents, so that a merge is one change.

        Raises `UserError` if one is unknown, or if good is no ancestor of bad.
        """
        shas = []
        for option, revision in (("--good", good), ("--bad", bad)):
            if (commit := self.commit(revision)) is None:
                raise UserError(f"{option}={revision}: no such commit in {self.top}")
            shas.append(commit.sha)
        if shas[0] == shas[1]:
            raise UserError(f"--good={good} and --bad={bad} are the same commit")
        try:
            self._git("merge-base", "--is-ancestor", *shas)
        except subprocess.CalledProcessError:
            raise UserError(f"--good={good} is no ancestor of --bad={bad}") from None
        return [
            *self._log("--max-count=1", shas[0]),
            *self._log("--reverse", "--first-parent", f"{shas[0]}..{shas[1]}"),
        ]

    def commit(self, revision: str) -> Commit | None:
        """Return the commit that a revision names; None if there is no such one."""
        try:
            sha = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            return None
        return self._log("--max-count=1", sha)[0]

    def _log(self, *words: str) -> list[Commit]:
        lines = self._git("log", "--format=%H %s", *words).splitlines()
        return [Commit(sha, subject) for sha, _, subject in (line.partition(" ") for line in lines)]

    def files(self, folder: Path) -> list[Path]:
        """Return the paths, from the top of the repository, of the files in a folder that git does not ignore."""
        listed = self._git(
            "-C", str(folder), "ls-files", "-z", "--full-name", "--cached", "--others", "--exclude-standard"
        )
        return [Path(name) for name in listed.split("\0") if name]

    def checkout(self, commit: Commit, build: str | None, builds: Path, resume: bool = False) -> Checkout:
        """Return a commit that is checked out below `builds` and built there by a command of a shell, once.

        The command runs in a virtual environment of its own that has the packages of this one. Raises `BuildError`
        if it fails, or with `resume` if it failed before, and `UserError` if it names a command that there is not.
        """
        folder = builds.absolute() / f"{commit.sha}-{hashlib.sha256((build or '').encode()).hexdigest()[:8]}"
        done, made = folder / "built.json", Checkout(folder / "tree", folder / "env" if build else None)
        if done.exists():
            error = msgspec.json.decode(done.read_bytes(), type=_Built).error
            if error and resume:
                raise BuildError(error)
            if not error and made.tree.is_dir():
                return made
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            self._git("worktree", "add", "--force", "--force", "--detach", str(made.tree), commit.sha)
        except subprocess.CalledProcessError as error:
            raise UserError(f"git cannot check {commit.sha[:12]} out: {one_line(error.stderr)}") from error
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from error
        failure = self._built(build, made, folder / "build.log") if build else ""
        atomic.write(done, msgspec.json.encode(_Built(failure)))
        if failure:
            raise BuildError(failure)
        return made

    def _built(self, build: str, made: Checkout, log: Path) -> str:
        """Build; returns why that failed, or nothing."""
        assert made.env is not None
        _make_environment(made.env)
        path = f"{made.env / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        around = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(made.env)}
        with (
            log.open("wb") as output,
            guard.started(
                "benchmarker.library.shell",
                build,
                cwd=made.tree,
                env=around,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            status = process.wait()
        last = (log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        if status in NOT_FOUND:
            raise UserError(f"the build: {one_line(last)}; install what is missing")
        if status:
            return f"the build ended with status {status}: {one_line(last)} ({log})"
        changed = self._git("-C", str(made.tree), "status", "--porcelain", "--untracked-files=no")
        return f"the build changes files of the commit: {one_line(changed)}" if changed else ""

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words],
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout.strip()


def _packages(env: Path) -> Path:
    return next(env.glob("lib/python*/site-packages"))


def _make_environment(folder: Path) -> None:
    """Make a virtual environment that has the packages of this one, and its pip."""
    venv.create(folder, symlinks=True)
    lines = [f"import site; site.addsitedir({path!r})" for path in sys.path if path.endswith("-packages")]
    (_packages(folder) / "outer.pth").write_text("\n".join(lines) + "\n")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {shlex.quote(str(folder / "bin" / "python"))} -m pip "$@"\n')
    pip.chmod(0o755)


def program_options(checkout: Checkout) -> list[str]:
    """Return options of a program with which it runs in a checkout, and in the environment of its build."""
    options = [f"--workdir={checkout.tree}"]
    if checkout.env:
        path = os.pathsep.join([str(checkout.env / "bin"), os.environ.get("PATH", os.defpath)])
        options += [f"--env=PATH={path}", f"--env=VIRTUAL_ENV={checkout.env}"]
    return options
