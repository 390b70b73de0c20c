"""What perf tests are compared with: stored records of this machine, or a git revision that is measured in turns."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.comparing.judge import compare
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Comparison, Rules
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.commits import BuildError, Checkout, Commit, Repository
from benchmarker.library.judging import judged
from benchmarker.records import store
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import SOURCE, changes, factors_of, text, varying, work
from benchmarker.records.record import Record
from benchmarker.records.sides import Side
from benchmarker.running.context import Listener
from benchmarker.worker import perf_tests
from benchmarker.worker.perf_tests import Place, told

HERE = "this checkout"
MACHINE = ("host", "machine", "processor", "device_name", "usable_cores")
"""What tells machines apart."""
CHECKOUTS = ".baseline"
"""The folder of checkouts below that of records, hidden so that no file in it is read as one.

It is not that of other commands: tests of the user are copied into these.
"""
CONFTEST, PACKAGE = "conftest.py", "__init__.py"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a perf test measured, and how it compares; `missing` says why there is no comparison, if one was asked for.

    `is_elsewhere` says that the baseline was measured on another machine.
    """

    records: Sequence[Record]
    comparison: Comparison | None = None
    missing: str = ""
    is_elsewhere: bool = False


def _compared(name: str, baseline: Side, own: Sequence[Record], rules: Rules) -> Comparison:
    match = Match({}, baseline, Side(HERE, tuple(own)), name)
    return compare([match], rules, load_metrics()).comparisons[0]


@dataclass(frozen=True, slots=True)
class Stored:
    """Records of a folder or an archive, which has a `name`."""

    name: str
    records: Sequence[Record]

    @classmethod
    def of(cls, option: str, path: Path) -> Stored:
        """Read a folder or an archive; raises `UserError` if it has no record, or one that cannot be read."""
        records, faults = store.read([path])
        if faults or not records:
            raise UserError(f"{option}={faults[0] if faults else f'{path}: contains no record'}")
        return cls(path.name or str(path), records)

    def outcome(self, name: str, own: Sequence[Record], rules: Rules) -> Outcome:
        """Compare records of a case with those of the same case and settings from the same machine."""
        case = own[0].case
        same_work = [each for each in self.records if work(each.case) == work(case)]
        fitting = [each for each in same_work if not _unlike(each.case, case)]
        if not fitting:
            differ = ", ".join(_unlike(same_work[0].case, case)) if same_work else ""
            why = f"measured it with other settings: {differ}" if differ else "has no record of it"
            return Outcome(own, missing=f"{self.name} {why}")
        here = environment_of(own[0])
        if not (near := [each for each in fitting if not _elsewhere(each, here)]):
            there = changes(environment_of(fitting[-1]), here, _elsewhere(fitting[-1], here))
            return Outcome(own, missing=f"{self.name} is of another machine ({'; '.join(there)})", is_elsewhere=True)
        return Outcome(own, _compared(name, Side(self.name, tuple(near)), own, rules))


def _unlike(one: Case, other: Case) -> list[str]:
    """Return the factors in which two cases differ, but for the text of the test."""
    return [name for name in varying([factors_of(one), factors_of(other)]) if name != SOURCE]


def _elsewhere(record: Record, here: Mapping[str, object]) -> list[str]:
    """Return what tells the machine of a record from this one."""
    there = environment_of(record)
    return [name for name in MACHINE if text(there[name]) != text(here[name])]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Revision:
    """A git revision, which is checked out and built below `folder` once."""

    name: str
    repository: Repository
    commit: Commit
    build: str | None
    folder: Path

    @classmethod
    def of(cls, option: str, name: str, root: Path, build: str | None, results: Path) -> Revision:
        """Find a revision, to be checked out below the results; raises `UserError` if there is none."""
        try:
            repository = Repository(root)
        except UserError as error:
            raise UserError(f"{option}={name}: no such file or folder; {error}") from None
        if (commit := repository.commit(name)) is None:
            raise UserError(f"{option}={name}: no such file or folder, and no such commit in {repository.top}")
        return cls(name, repository, commit, build, results / CHECKOUTS)

    @cached_property
    def checkout(self) -> Checkout:
        """The revision, checked out and built; raises `UserError` if that fails."""
        try:
            return self.repository.checkout(self.commit, self.build, self.folder)
        except BuildError as error:
            raise UserError(f"{self.name}: {error}") from error

    def outcome(
        self,
        name: str,
        case: Case,
        file: Path,
        own: Place,
        rules: Rules,
        rounds: int,
        results: Path,
        listener: Listener,
    ) -> Outcome:
        """Measure a case here and at the revision in turns; a trial is a fresh process."""
        there, place = self._place(file, own)
        cases = [msgspec.structs.replace(case, problem=str(there)), case]
        with told({each.problem: where for each, where in zip(cases, (place, own), strict=True)}):
            made = judged(
                cases,
                [],
                rules,
                results,
                False,
                listener,
                both_auto=True,
                design="rounds",
                target=None,
                budget_s=None,
                max_rounds=rounds,
                order_seed=None,
            )
        before, here = ([each for each in made.records if each.design.case_number == number] for number in (0, 1))
        if not any(each.error is None for each in before) and before[0].error:
            return Outcome(here, missing=f"at {self.name}, {before[0].error.message}")
        return Outcome(here, _compared(name, Side(self.name, tuple(before)), here, rules))

    def _place(self, file: Path, own: Place) -> tuple[Path, Place]:
        """Return the file of a test in the checkout, and how a worker gets there.

        The test and each `conftest.py` are copied from the user, and beside the test what the revision lacks.
        """
        top, tree = self.repository.top.resolve(), self.checkout.tree.resolve()
        if not file.is_relative_to(top):
            raise UserError(f"{file} is not in the repository {top}; compare with a folder of results")
        there = tree / file.relative_to(top)
        folders = [folder for folder in there.parents if folder.is_relative_to(tree)]
        wanted = {folder / CONFTEST for folder in folders} | {there}
        for each in self.repository.files(file.parent):
            wanted |= {tree / each} if not (tree / each).exists() else set()
        wanted |= {folder / PACKAGE for folder in folders if not (folder / PACKAGE).exists()}
        for each in wanted:
            if (source := top / each.relative_to(tree)).is_file():
                each.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, each)
        tests = [there.parent] if there.parent != tree else [there]
        tests += [folder / CONFTEST for folder in folders]

        def moved(word: str) -> str:
            """Return a path, or an option that ends in one, in the checkout."""
            option, equals, path = word.rpartition("=")
            is_own = Path(path).is_absolute() and Path(path).resolve().is_relative_to(top)
            return f"{option}{equals}{tree / Path(path).resolve().relative_to(top)}" if is_own else word

        return there, Place(
            name=own.name,
            words=[moved(word) for word in own.words],
            given=[moved(word) for word in own.given],
            own=[moved(word) for word in own.own],
            folder=moved(own.folder),
            paths=[path for each in own.paths if (path := moved(each)) != each and Path(path).exists()],
            baseline=perf_tests.Baseline(
                tree=str(tree),
                packages=self.checkout.packages,
                user=str(top),
                tests=[str(each) for each in tests],
            ),
        )
