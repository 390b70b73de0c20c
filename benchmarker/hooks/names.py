"""Names of cases in a few words: `GPT-2 small training, B=1 T=128 bf16`.

A problem gives its cases a title. A table appends the other factors in which its cases differ; what all of them share
is printed once, above it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import fields

from benchmarker.api.case import EXECUTIONS, Case, Measuring, Mode
from benchmarker.api.problem import FUNCTION
from benchmarker.api.program import is_program, usually
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.registry import Plugin
from benchmarker.records.factors import DEFAULTS, Factors, Value, label, text, varying
from benchmarker.records.sides import SIDE

_TITLED = ("problem", "mode")
_OF_CASE = tuple(name for name in Case.__struct_fields__ if name not in (*_TITLED, "params", "measuring"))
_OTHERS = (*_OF_CASE, "execution", *Measuring.__struct_fields__, "host", SIDE)
"""Factors that no title contains; a command may group cases by host or by side too."""
_KEPT = ("framework", "execution", "precision", "devices")
"""Factors that a name contains wherever they differ, even if other factors already tell the cases apart."""
_BARE = (*_TITLED, "framework", "execution", "precision", "device", SIDE)
"""Factors whose values need no explanation."""
_USUAL: Factors = {
    "execution": EXECUTIONS[0],
    **{
        field.name: field.default
        for field in fields(Case)
        if field.name in _OF_CASE and not (field.required or field.name in ("precision", "source"))
    },
    **DEFAULTS,
}
"""Values that are not mentioned where all cases share them."""


@dataclass(frozen=True, slots=True)
class Names:
    """The name of each case of a table, what all cases share in words, and names for use without the latter.

    If all cases have the same title, it is shared, so a name is empty if there is nothing to tell.
    """

    each: tuple[str, ...]
    shared: str
    whole: tuple[str, ...]


def of_programs(cases: Iterable[Factors]) -> bool:
    """Whether all cases are programs, which have a precision of their own and are executed in one way."""
    return all(is_program(str(case.get("problem", ""))) for case in cases)


def names(
    cases: Sequence[Factors],
    apart: Collection[str] = (),
    titles: Sequence[str] = (),
    programs: bool | None = None,
) -> Names:
    """Name the cases of a table: different cases have different names, equal cases have the same name.

    A case is given by its factors. `apart` are factors that stand elsewhere, such as in a column; cases that differ
    only in them may share a name. `titles` stand for those of the cases; `programs` says whether all are `of_programs`
    if their problem stands elsewhere.
    """
    differ = varying(cases)
    programs = of_programs(cases) if programs is None else programs
    same = {name: value for name, value in cases[0].items() if name not in differ and name not in apart}
    bare = [] if titles or all(map(_own_title, cases)) else [name for name in same if name in _params(cases[0])]
    full = titles or [title(case) for case in cases]
    titles = titles or [title(case, without=bare) for case in cases]
    told = [(own, *_values(case, apart)) for own, case in zip(titles, cases, strict=True)]
    added = telling(cases, told, [name for name in differ if name in _OTHERS and name not in apart], _KEPT)
    keys = [(*key, *_values(case, added)) for key, case in zip(told, cases, strict=True)]
    alike: dict[tuple[Value, ...], list[Factors]] = {}
    for key, case in zip(keys, cases, strict=True):
        alike.setdefault(key, []).append(case)
    more = {key: [name for name in varying(group) if name not in apart] for key, group in alike.items()}
    words = [
        " ".join(filter(None, (word(name, case[name]) for name in (*added, *more[key]) if name in case)))
        for key, case in zip(keys, cases, strict=True)
    ]
    whole = tuple(f"{own} {more}".strip() for own, more in zip(full, words, strict=True))
    if len(set(titles)) == 1:
        return Names(tuple(words), _shared(same, f"{titles[0]} {label(same, bare)}".strip(), programs), whole)
    each = tuple(f"{own} {more}".strip() for own, more in zip(titles, words, strict=True))
    return Names(each, _shared(same, label(same, bare), programs), whole)


def name(case: Factors) -> str:
    """Return the name of a case that stands alone: `GEMM 16×4096×4096 bf16 in jax on cuda`."""
    return on_side(case, _shared(case, title(case), of_programs([case])))


def on_side(case: Factors, name: str) -> str:
    """Return the name of a case with that of its side before it, if it has one."""
    return f"{case[SIDE]}: {name}" if SIDE in case else name


def title(case: Factors, without: Collection[str] = ()) -> str:
    """Return what a case computes, in a few words; this function alone decides it.

    It is the title that the problem gives. If the problem is not installed, gives none, or rejects the parameters, as
    another version may, it is the name of the problem, the mode unless it is inference, and the parameters, but those
    of `without`.
    """
    if own := _own_title(case):
        return own
    mode, head = str(case["mode"]), label(case, [FUNCTION]) if FUNCTION in case else str(case["problem"])
    params = label(case, [name for name in _params(case) if name not in without])
    return " ".join(filter(None, [head, mode * (mode != "inference"), params]))


def common_words(titles: Iterable[str]) -> str:
    """Return the words that all titles contain, in their order."""
    first, *others = (each.split() for each in titles)
    return " ".join(word for word in first if all(word in other for other in others))


def word(name: str, value: Value) -> str:
    """Return a factor in a word or two: `bf16`, `2 threads`, `seed=1`."""
    if name in _BARE:
        return text(value)
    if name == "parallel":
        return "" if value == "none" else text(value)
    if name in ("devices", "threads"):
        return f"default {name}" if value is None else f"{value} {name[: -1 if value == 1 else None]}"
    if name == "independent":
        return "independent" if value else "together"
    return f"{name}={text(value)}"


def telling(
    cases: Sequence[Factors], told: Sequence[tuple[Value, ...]], differ: Sequence[str], kept: Collection[str] = ()
) -> list[str]:
    """Return the fewest factors that, besides what is `told`, tell cases apart as all of `differ` do, and the kept."""

    def kinds(among: Sequence[str]) -> int:
        return len({(*key, *_values(case, among)) for key, case in zip(told, cases, strict=True)})

    needed = list(differ)
    for name in reversed(differ):
        fewer = [each for each in needed if each != name]
        if name not in kept and kinds(fewer) == kinds(needed):
            needed = fewer
    return needed


def _values(case: Factors, names: Collection[str]) -> tuple[Value, ...]:
    return tuple(case.get(name) for name in names)


def _shared(same: Factors, head: str, programs: bool) -> str:
    """Describe what cases share: what stands at the head, precision, framework, device, then what is not as usual.

    Of several frameworks, how they run a step is told in any case.
    """
    places = {"precision": "", "framework": "in ", "device": "on "}
    usual = _USUAL
    if programs:
        places, usual = {"device": "on "}, {**_USUAL, **usually(same), "execution": same.get("execution")}
    words = [head, *(f"{how}{text(same[name])}" for name, how in places.items() if name in same)]
    compared = {"execution"} if "framework" not in same else set()
    more = [
        word(name, value)
        for name, value in same.items()
        if name in compared or (name in usual and value != usual[name])
    ]
    return ", ".join(filter(None, [" ".join(filter(None, words)), *more]))


def _params(case: Factors) -> list[str]:
    """Return the names of the problem's parameters; the function of a user's file is part of its name."""
    others = (*_OTHERS, *_TITLED, FUNCTION)
    return [name for name in case if name not in others]


def _own_title(case: Factors) -> str:
    """Return the title that the problem of a case gives it, empty if it gives none."""
    plugin = registry.known(f"problem.{case['problem']}")
    params = tuple((name, case[name]) for name in _params(case))
    return _given(plugin, case["mode"], params) if plugin else ""


@cache
def _given(plugin: Plugin, mode: Mode, params: tuple[tuple[str, Value], ...]) -> str:
    """Return the title that a problem gives to a case, empty if it gives none or fails."""
    try:
        problem = registry.problem(plugin.name)
        return " ".join(parameters.convert(problem, dict(params)).title(mode).split())
    except (Exception, SystemExit):  # noqa: BLE001 - a plugin's mistake costs its titles alone
        return ""
