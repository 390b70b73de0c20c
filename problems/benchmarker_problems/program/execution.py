"""Executing a program: what comes before and after it, and whether its output is as it should be."""

import os
import resource
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from benchmarker import Case, Execution, Figure, TrialError, UserError, mostly_started, scratch
from benchmarker_problems.program import Program
from benchmarker_problems.program.figures import OF_SYSTEM, declared
from benchmarker_problems.program.parsing import check_sanity
from benchmarker_problems.program.process import Ended, Started, failure, log, peak_bytes
from benchmarker_problems.program.ranks import Watch, launches

STARTS = 11
"""How often an empty program is started to see how long that takes."""


class ProgramExecution(Execution):
    """A program of a trial, with a folder of its own that is deleted at the end."""

    def __init__(self, problem: Program, case: Case) -> None:
        self._problem = problem
        self._measuring = case.measuring
        self._ended: list[Ended] = []
        self._empty: list[Ended] = []
        self._own_bytes = 0
        self._watch: Watch | None = None
        self._stack = ExitStack()
        self._scratch = ""

    def prepare(self) -> None:
        """Make the folder, start an empty program a few times, and execute what --prepare names."""
        problem, measuring = self._problem, self._measuring
        if problem.prepare and not self.stepwise and measuring.blocks + measuring.warmup_steps > 1:
            raise UserError("--prepare is for one execution in a trial; give --trials instead of --blocks")
        if not self.stepwise:
            self._empty = [Started(["true"], os.environ).wait() for _ in range(STARTS)]
        self._scratch = str(self._stack.enter_context(scratch()))
        with self._closing_on_failure():
            self._beside("prepare", problem.prepare)
        if launches(problem.text):
            self._watch = Watch(self._scratch)

    def block(self, steps: int) -> int:
        """Execute the program once and wait for it; returns its duration in ns."""
        with self._closing_on_failure():
            ended = self._started({}).wait()
            self._add(ended)
        return ended.duration_ns

    def _started(self, more: Mapping[str, str], given: Sequence[int] = ()) -> Started:
        """Start the program with more variables of the environment, and descriptors that are `given`."""
        return Started(self._problem.words(self._scratch), {**self._environment, **more}, given, self._folder)

    @property
    def _environment(self) -> Mapping[str, str]:
        return self._problem.environment(os.environ, self._scratch)

    @property
    def _folder(self) -> str | None:
        return self._problem.filled(self._problem.workdir, self._scratch) or None

    def _add(self, ended: Ended) -> None:
        """Take an execution that has ended as one of the trial; raises `TrialError` if it failed."""
        self._ended.append(ended)
        self._own_bytes = peak_bytes(resource.getrusage(resource.RUSAGE_SELF))
        if ended.status:
            raise failure(ended)

    def figures(self) -> Sequence[Figure]:
        """Return the figures of the timed executions, and remove the folder; raises `TrialError` if one is not sane."""
        timed = self._ended[0 if self.stepwise else self._measuring.warmup_steps :]
        try:
            for line in filter(None, self._problem.sanity.splitlines()):
                for one in timed:
                    check_sanity(line, one.text)
            found = [
                Figure(each.name, each.unit, each.better, [value for one in timed for value in each.found(one.text)])
                for each in declared(self._problem.figure)
            ]
        finally:
            self._close()
        of_system = (
            [one.used.ru_utime for one in timed],
            [one.used.ru_stime for one in timed],
            [one.duration_ns / 1e9 for one in self._empty],
        )
        system = [Figure(name, "s", "lower", of) for name, of in zip(OF_SYSTEM, of_system, strict=True) if of]
        return [*system, *(self._watch.end() if self._watch else ()), *found]

    def suspicions(self) -> Sequence[str]:
        """Return that starting a process is most of what was timed, if it is."""
        own_ns, empty_ns = (min(one.duration_ns for one in several) for several in (self._ended, self._empty))
        text = mostly_started(own_ns / 1e9, empty_ns / 1e9)
        return [text] if text else []

    def peak_rss_bytes(self) -> int | str:
        """Return the largest resident set of a process of the program.

        The system counts what this process had when it started the program, so nothing below that is known.
        """
        peak = max(peak_bytes(one.used) for one in self._ended)
        if peak > self._own_bytes:
            return peak
        return f"it is at most {self._own_bytes >> 20} MiB, those of the process that started the program"

    def _beside(self, option: str, lines: str) -> None:
        """Let a shell execute what is not timed; raises `TrialError` if it fails."""
        for line in filter(None, lines.splitlines()):
            text = self._problem.filled(line, self._scratch, quoted=True)
            done = subprocess.run(
                ["sh", "-c", text],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=self._environment,
                cwd=self._folder,
            )
            if done.returncode:
                raise TrialError(f"--{option} ended with status {done.returncode}: {line}", exit=done.returncode)

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Log what was printed, execute what --cleanup names, and delete the folder."""
        if self._watch:
            self._watch.end()
        for ended in self._ended:
            log(ended.outputs)
        with self._stack:
            self._beside("cleanup", self._problem.cleanup)
