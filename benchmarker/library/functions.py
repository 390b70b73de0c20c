"""`ab` and `measure`: functions given as values, here or in fresh processes; and two configurations."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION
from benchmarker.comparing import matching
from benchmarker.comparing.judge import compare as compare_matches
from benchmarker.display.records import cases_output
from benchmarker.display.result import Part, Text
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.library.frames import frame_of
from benchmarker.library.in_process import measured_here
from benchmarker.library.judging import Design, Verdicts, judged, pairs_of, rules_of
from benchmarker.library.measuring import description_of, run
from benchmarker.library.progress import Progress, listener_of
from benchmarker.planning import factors
from benchmarker.records.factors import SOURCE
from benchmarker.records.sides import Side
from benchmarker.stats.verdict import LOOKS

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.comparing.matching import Match
    from benchmarker.comparing.results import Family, Rules
    from benchmarker.records.record import Record

    Function = Callable[..., Any]

HELPERS = ("inputs", "reference", "bound")


@dataclass(frozen=True, repr=False)
class FunctionResults(Verdicts):
    """What `measure` and `ab` give of functions: their records, and the comparisons of all others with the first.

    `fresh` says whether each trial had a process of its own. Otherwise, all verdicts are provisional.
    """

    fresh: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """The comparisons, and the records."""
        return {**super().data, "fresh": self.fresh, "records": self.records}

    def parts(self) -> Iterator[Part]:
        """Yield the verdicts in words and as a table, or a table of the cases if nothing is compared."""
        if self.family.comparisons:
            yield from super().parts()
        else:
            yield from cases_output(Cases.of(self.records), load_metrics(), remedy="`.records` has")
        yield Text(f"measured in {'fresh processes' if self.fresh else 'this process'}")

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each comparison, or for each record if nothing is compared."""
        return super().to_pandas() if self.family.comparisons else frame_of(self.records, load_metrics())


def ab(
    a: Mapping[str, Any] | Function,
    b: Mapping[str, Any] | Function,
    *,
    inputs: Function | None = None,
    reference: Function | None = None,
    bound: Function | float | None = None,
    fresh: bool | None = None,
    output: str | PathLike[str] | None = None,
    design: Design = "auto",
    target: float | None = None,
    budget_s: float | None = None,
    max_rounds: int = LOOKS[-1],
    order_seed: int | None = None,
    metric: str | None = None,
    statistic: str | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    results: str | PathLike[str] = "results",
    resume: bool = False,
    progress: Progress = None,
    **common: Any,
) -> Verdicts:
    """Compare two configurations in rounds (a trial of A and one of B) until one is faster or both are within `delta`.

    `a` and `b` have the options of one side, `common` those of both; they are those of `run`. The verdict is tested
    after 8, 11, 15, 20 and 30 rounds; `alpha` is divided among these tests. `target` continues until the ratio is known
    to within ± this share, `budget_s` is the maximum time of all trials in seconds. Of files, of which no `function` is
    named, each function that both have is compared with itself. Raises `UserError` as `run` does.

    Two functions are compared as by `measure`, which has `inputs` to `output`; nothing is stored in `results`.
    """
    rules = rules_of(metric, statistic, delta, alpha)
    of_rounds: dict[str, Any] = {
        "design": design,
        "target": target,
        "budget_s": budget_s,
        "max_rounds": max_rounds,
        "order_seed": order_seed,
    }
    if not isinstance(a, Mapping) and not isinstance(b, Mapping):
        helpers = _helpers(inputs, reference, bound)
        return _of_functions([a, b], helpers, common, rules, fresh, output, progress, of_rounds)
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        raise UserError("a and b are two functions, or two mappings of options")
    if (inputs, reference, bound, fresh, output) != (None,) * 5:
        raise UserError("inputs, reference, bound, fresh and output belong to functions; a and b are options of `run`")
    sides = {**common, **a}, {**common, **b}
    pairs = pairs_of(("a", sides[0]), ("b", sides[1]))
    both_auto = all(settings.get("device", "auto") == "auto" for settings in sides)
    return judged(*pairs, rules, Path(results), resume, listener_of(progress), both_auto=both_auto, **of_rounds)


def measure(
    *functions: Function,
    inputs: Function | None = None,
    reference: Function | None = None,
    bound: Function | float | None = None,
    fresh: bool | None = None,
    output: str | PathLike[str] | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    progress: Progress = None,
    **options: Any,
) -> FunctionResults:
    """Measure functions that are given as values, and compare each with the first.

    `inputs` returns their arguments; its parameters are options, as are the settings of `run`, and a list makes a row
    of each value. Results are compared with `reference`, or with those of the first function, in float64; `bound` is
    the largest relative error that is right. Functions of a file or module, with its own helpers, are measured in fresh
    processes, as `fresh=True` demands and `fresh=False` prevents; all others in this process, where verdicts are
    provisional. Records are stored in a folder `output`, if there is one. Progress is told in a terminal and in a
    notebook, with `progress=False` never. Raises `UserError` if an option is unknown, or if a function or its inputs
    fail, and `KeyboardInterrupt` with what is lost; its attribute `results` has the rows before, if there are any.
    """
    helpers = _helpers(inputs, reference, bound)
    rules = rules_of(delta=delta, alpha=alpha)
    return _of_functions(functions, helpers, options, rules, fresh, output, progress)


def _helpers(
    inputs: Function | None, reference: Function | None, bound: Function | float | None
) -> dict[str, Function]:
    if isinstance(bound, int | float):
        value = bound
        bound = lambda: value  # noqa: E731
    given = {"inputs": inputs, "reference": reference, "bound": bound}
    return {name: helper for name, helper in given.items() if helper is not None}


def _of_functions(
    functions: Sequence[Function],
    helpers: Mapping[str, Function],
    options: Mapping[str, Any],
    rules: Rules,
    fresh: bool | None,
    output: str | PathLike[str] | None,
    progress: Progress,
    of_rounds: Mapping[str, Any] = {},
) -> FunctionResults:
    if not functions:
        raise UserError("no function is given")
    is_watched = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    listener = listener_of(is_watched if progress is None else progress)
    folder = Path(output) if output is not None else None
    sources = _sources(functions, helpers)
    if fresh and isinstance(sources, str):
        raise UserError(f"fresh=True: {sources}")
    is_here = fresh is False or isinstance(sources, str)
    records: list[Record] = []
    ended: list[str] = []

    def results() -> FunctionResults:
        reasons = "; ".join(dict.fromkeys(ended))
        family, matches = _judged(records, rules)
        return FunctionResults(
            family, None, matches, (), records, path=folder, ended=reasons, rules=rules, fresh=not is_here
        )

    try:
        if fresh is False or isinstance(sources, str):
            for helper in HELPERS if not isinstance(sources, str) else ():
                if known := getattr(sys.modules[functions[0].__module__], helper, None):
                    helpers = {helper: known, **helpers}
            measured_here(_named(functions), helpers, options, folder, listener, records)
            return results()
        with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
            _in_fresh_processes(sources, options, rules, Path(place), listener, of_rounds, records, ended)
    except KeyboardInterrupt as interrupt:
        if records:
            interrupt.results = results()  # type: ignore[attr-defined]
        raise
    for source in sources:
        errors = [
            one.error for one in records if {"problem": one.case.problem, **one.case.params}.items() >= source.items()
        ]
        if errors and all(errors) and errors[0]:
            raise UserError(f"{source[FUNCTION]}: {errors[0].message}")
    return results()


def _in_fresh_processes(
    sources: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    rules: Rules,
    folder: Path,
    listener: Any,
    of_rounds: Mapping[str, Any],
    records: list[Record],
    ended: list[str],
) -> None:
    """Run the first source alone, or in rounds with each of the others; adds the records, and why rounds ended."""
    first, *others = sources
    if not others:
        records += run(**first, **options, results=folder, progress=listener).records
        return
    for table in factors.expand(description_of(options, trials=1)):
        for other in others:
            pairs = pairs_of(("a", {**table, **first}), ("b", {**table, **other}))
            both_auto = table.get("device", "auto") == "auto"
            made = judged(*pairs, rules, folder, False, listener, both_auto=both_auto, **of_rounds)
            records += made.records
            ended.append(made.ended)


def _named(functions: Sequence[Function]) -> dict[str, Function]:
    """Return functions by their names, of which each is one of its own."""
    named: dict[str, Function] = {}
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__).strip("<>")
        names = chain([name], (f"{name}_{number}" for number in count(2)))
        named[next(one for one in names if one not in named)] = function
    return named


def _sources(functions: Sequence[Function], helpers: Mapping[str, Function]) -> list[dict[str, Any]] | str:
    """Return the file and the name in it of each function, or why there is none that has it and its helpers."""
    sources: list[dict[str, Any]] = []
    for function in functions:
        name = getattr(function, "__qualname__", type(function).__name__)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None) or ""
        if module is None or module.__name__ == "__main__" or not file.endswith(".py"):
            return f"{name} is not from a file or a module"
        if getattr(module, name, None) is not function:
            return f"{name} is not at the top of {Path(file).name}"
        if other := next((one for one, helper in helpers.items() if getattr(module, one, None) is not helper), None):
            return f"{other} is not that of {Path(file).name}"
        path = Path(file)
        problem = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
        try:
            fields = parameters.fields(registry.problem(problem))
        except UserError as error:
            return str(error)
        if name not in next(field.choices for field in fields if field.name == FUNCTION):
            return f"{name} is not what {Path(file).name} has to measure"
        sources.append({"problem": problem, FUNCTION: name})
    return sources


def _judged(records: Sequence[Record], rules: Rules) -> tuple[Family, list[Match]]:
    """Judge the cases of all functions against those of the first."""
    derive = load_metrics()
    refuse_unknown([rules.metric], records, derive)
    sides = list(dict.fromkeys((one.case.problem, one.case.params[FUNCTION]) for one in records))
    if len(sides) == 1:
        has_two = any(one.design.case_number for one in records)
        made = matching.within(records) if has_two else matching.Matching(())
    else:
        axis = FUNCTION if len({problem for problem, _ in sides}) == 1 else f"problem,{SOURCE},{FUNCTION}"
        made = matching.by(records, axis, None)
    is_plain = len({function for _, function in sides}) == len(sides) > 1

    def called(side: Side) -> Side:
        return replace(side, name=str(side.records[0].case.params[FUNCTION])) if is_plain else side

    matches = [
        replace(match, baseline=called(match.baseline), contender=called(match.contender)) for match in made.matches
    ]
    return compare_matches(matches, rules, derive, made.unmatched, made.notes, made.shared), matches
