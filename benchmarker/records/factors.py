"""The factors of a case: all that was requested, by name; and how users select cases by them.

A selection is written in TOML as `match = {problem = "gpt2", seq_len = 128}`, on the command line as `seq_len=128`.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from benchmarker.api.case import Case, CaseRequest, Measuring, option_name
from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION
from benchmarker.api.program import PROGRAM, is_program
from benchmarker.files.toml import take
from benchmarker.formatting import value_text

Value = bool | int | float | str | None
Factors = Mapping[str, Value]
DEFAULTS = msgspec.structs.asdict(Measuring())
"""Default measuring settings; tables omit them."""

_LATER = ("problem", "compile", "params", "seed", "measuring")
_OF_CASE = (
    *("problem", "framework", "execution"),
    *(name for name in CaseRequest.__struct_fields__ if name not in _LATER),
)
_UNTIMED = {"profile", "profile_steps", "separable", "power", "power_hz", "power_min_s", "power_idle_s", "counters"}
"""Settings of a case that do not affect what is timed."""
_TIMED = tuple(name for name in Measuring.__struct_fields__ if name not in _UNTIMED)

SOURCE = "source"
"""The factor that tells versions of a user's file apart: so many digits of its digest."""
DIGITS = 12


def factors_of(case: Case) -> dict[str, Value]:
    """Return all requested factors as a flat dictionary: case fields, the problem's parameters, measuring settings."""
    factors: dict[str, Value] = {name: getattr(case, name) for name in _OF_CASE}
    factors |= case.params
    if case.source:
        factors[SOURCE] = case.source[:DIGITS]
    factors["seed"] = case.seed
    for name in _TIMED:
        factors[name] = getattr(case.measuring, name)
    return factors


def work(case: Case) -> dict[str, Value]:
    """Return the factors that define what is computed; cases that differ in one of them do different work."""
    return {"problem": case.problem, "mode": case.mode, "precision": case.precision, **case.params}


def varying(several: Sequence[Factors]) -> list[str]:
    """Return the names of the factors that differ between some of the configurations."""
    names = dict.fromkeys(name for each in several for name in each)
    return [name for name in names if len({each.get(name) for each in several}) > 1]


def changes(before: Factors, after: Factors, names: Iterable[str]) -> list[str]:
    """Return how the named factors differ, as text, those that change alike together: `m, n, k 1024 → 512`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        one, two = before.get(name), after.get(name)
        if one != two:
            alike.setdefault(f"{text(one)} → {text(two)}", []).append(name)
    return [f"{', '.join(several)} {change}" for change, several in alike.items()]


def label(these: Factors, names: Sequence[str]) -> str:
    """Format the named factors as text: `framework=jax m=256`; a function of a user's file is `softmax.py:fused`.

    A command line is as the user wrote it, and says which program it is.
    """
    words = {name: f"{name}={text(these.get(name))}" for name in names if name in these}
    if is_program(str(these.get("problem", ""))) and "problem" in words:
        words["problem"] = str(these["problem"]).removeprefix(PROGRAM)
        words.pop(SOURCE, None)
    if FUNCTION in words and SOURCE in these and "problem" in these:
        words[FUNCTION] = f"{these['problem']}:{these[FUNCTION]}"
        words = {name: word for name, word in words.items() if name not in ("problem", SOURCE)}
    return " ".join(words.values())


def text(value: Value) -> str:
    """Format a factor's value for a table."""
    return "-" if value is None else value_text(value)


def take_match(name: str, table: Mapping[str, Any]) -> dict[str, Value]:
    """Return the factors of a `match` table with the spelling of factors; raises `UserError` that names the key."""
    wanted: dict[str, Value] = {}
    for key, value in table.items():
        if setting(key) in wanted:
            raise UserError(f"{name}.{key} is given twice, spelt differently")
        wanted[setting(key)] = take(f"{name}.{key}", value, bool | int | float | str)
    return wanted


def chosen(words: Sequence[str], several: Sequence[Factors]) -> list[bool]:
    """Return which of several sets of factors words such as `seq_len=128,256` and `framework=jax` select together.

    Values are written as tables show them. Raises `UserError` if a word is malformed or one of its values selects
    nothing, or if nothing has all of them.
    """
    kept = [True] * len(several)
    spelt = [{setting(name): value for name, value in factors.items()} for factors in several]
    for word in words:
        key, texts = wanted_of(word)
        selected = [[key in factors and _is(factors[key], value) for factors in spelt] for value in texts]
        for value, of in zip(texts, selected, strict=True):
            if not any(of):
                raise UserError(f"--where={word}: {why_none({key: value}, several)}")
        kept = [before and any(ones) for before, ones in zip(kept, zip(*selected, strict=True), strict=True)]
    if not any(kept):
        raise UserError(f"--where: {why_none({}, several)}")
    return kept


def wanted_of(word: str) -> tuple[str, list[str]]:
    """Return the factor that a word such as `seq_len=128,256` names, and its values.

    Raises `UserError` if the word is malformed.
    """
    name, _, values = word.partition("=")
    texts = [each.strip() for each in values.split(",")]
    if not name.strip() or not all(texts):
        raise UserError(f"--where={word}: write NAME=VALUE or NAME=VALUE,VALUE")
    return setting(name.strip()), texts


def _is(value: Value, wanted: str) -> bool:
    """Whether a value is the one that tables show as this text; 1 and 1.0 are the same number."""
    try:
        return text(value) == wanted or (type(value) in (int, float) and value == float(wanted))
    except ValueError:
        return False


def selects(wanted: Factors, factors: Factors) -> bool:
    """Whether all wanted factors match; 1 and 1.0 are the same number, but true is not a number."""
    spelt = {setting(name): value for name, value in factors.items()}
    return all(
        name in spelt and spelt[name] == value and isinstance(spelt[name], bool) == isinstance(value, bool)
        for name, value in wanted.items()
    )


def why_none(wanted: Factors, several: Iterable[Factors]) -> str:
    """Explain why a selection selects nothing: no record has the name, or none has the value."""
    several = list(several)
    if not several:
        return "there is no record"
    values: dict[str, dict[Value, None]] = {}
    for factors in several:
        for name, value in factors.items():
            values.setdefault(setting(name), {})[value] = None
    for name, value in wanted.items():
        if name not in values:
            near = difflib.get_close_matches(name, values, n=1)
            return f"no record has a {name}" + (f"; did you mean {near[0]}?" if near else "")
        if not any(selects({name: value}, {name: known}) for known in values[name]):
            near = [value_text(known) for known in list(values[name])[:5]]
            return f"no record has {name}={value_text(value)}; they have {', '.join(near)}"
    return "no record has all of these factors together"


_OPTIONS = {option_name(name): name for kind in (CaseRequest, Measuring) for name in kind.__struct_fields__}
"""Settings by the names of their options."""


def setting(name: str) -> str:
    """Return the name of a setting, which may be spelt like its option."""
    plain = name.replace("-", "_")
    return _OPTIONS.get(plain, plain)
