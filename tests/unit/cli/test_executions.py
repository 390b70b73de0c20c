"""How frameworks run their steps stands in each table in which they are compared, and first where it may decide."""

import msgspec
import pytest
from support.records import make_ceiling, make_record

from benchmarker.files import atomic
from benchmarker.records import ceilings
from benchmarker.records.record import CostPart

REMEDY = "eager is compared with jitted (--compile compiles torch too)"
WAYS = {"torch": (False, ["eager", "compiled"]), "jax": (True, ["jitted"]), "numpy": (False, ["eager"])}


def trials(framework, step_s, number, **more):
    compiled, executions = WAYS[framework]
    case = {"framework": framework, "compile": compiled, "executions": executions, **more}
    cost = CostPart(10**9, 0, 10**6, 8, None)
    steps = [step_s * (1 + trial / 100) for trial in range(8)]
    return [
        make_record(step, trial=trial, case=case, design={"case_number": number}, cost=cost)
        for trial, step in enumerate(steps)
    ]


@pytest.fixture
def stored(tmp_path):
    def store(*several):
        for number, record in enumerate(record for records in several for record in records):
            path = tmp_path / "results" / f"{number:04}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(atomic.encode(msgspec.structs.replace(record, trial_id=f"{number:04}")))

    return store


@pytest.mark.parametrize(
    "words",
    [
        ("show", "results"),
        ("show", "results", "--trials"),
        ("pareto", "results"),
        ("table", "results"),
        ("table", "results", "--rows=framework"),
        ("compare", "results", "--by=framework"),
        ("compare", "results", "--by=framework", "--speedup"),
        ("suite", "score", "results", "--by=framework"),
        ("roofline", "results"),
    ],
)
def test_each_row_has_the_word_of_its_framework_within_80_columns(command, stored, monkeypatch, words):
    monkeypatch.setattr("benchmarker.tables.terminal.width", lambda: 80)
    stored(trials("torch", 2e-3, 0), trials("jax", 1e-3, 1), trials("numpy", 4e-3, 2))
    ceilings.keep([make_ceiling(1e13, resource) for resource in ("compute", "memory")])
    done = command(*words)
    assert done.returncode == 0, done.stderr
    for told in ("torch eager", "jax jitted", "numpy eager"):
        assert told in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "results", "--by=framework"),
        ("compare", "results"),
        ("compare", "results", "--by=framework", "--speedup"),
        ("suite", "score", "results", "--by=framework"),
    ],
)
def test_the_first_line_says_that_one_side_is_eager_and_what_compiles_it(command, stored, words):
    stored(trials("torch", 2e-3, 0), trials("jax", 1e-3, 1))
    assert REMEDY in command(*words).stdout.splitlines()[0]


def test_the_first_line_over_several_cases_says_it_too(command, stored):
    cases = [(name, ms) for ms in (1.0, 2.0) for name in ("torch", "jax")]
    stored(*(trials(name, 1e-3, number, params={"ms": ms}) for number, (name, ms) in enumerate(cases)))
    first = command("compare", "results", "--by=framework").stdout.splitlines()[0]
    assert first.startswith("over 2 cases")
    assert first.endswith(f"; {REMEDY}")


def test_several_comparisons_say_it_once(command, stored):
    stored(trials("torch", 2e-3, 0), trials("jax", 1e-3, 1), trials("numpy", 4e-3, 2))
    first = command("compare", "results", "--by=framework", "--baseline=jax").stdout.splitlines()[0]
    assert first == f"2 comparisons: 2 slower; {REMEDY}"


def test_a_side_that_is_never_compiled_has_no_remedy_and_alike_sides_no_line(command, stored, tmp_path):
    stored(trials("numpy", 2e-3, 0), trials("jax", 1e-3, 1))
    first = command("compare", "results", "--by=framework").stdout.splitlines()[0]
    assert first.endswith("; eager is compared with jitted")
    for path in (tmp_path / "results").iterdir():
        path.unlink()
    stored(trials("numpy", 2e-3, 0), trials("torch", 1e-3, 1))
    said = command("compare", "results", "--by=framework").stdout
    assert "compared with" not in said
    assert said.splitlines()[0].startswith("torch is 2x as fast as numpy")
    assert "on cpu, eager" in said


def test_tables_of_several_frameworks_have_the_remedy_below(command, stored):
    stored(trials("torch", 2e-3, 0), trials("jax", 1e-3, 1))
    for words in (("show", "results"), ("table", "results"), ("pareto", "results")):
        assert REMEDY in command(*words).stdout


def test_ceilings_say_how_their_framework_ran(command):
    ways = {"torch": "eager", "jax": "jitted"}
    known = [make_ceiling(1e12, "memory", framework=name, execution=way) for name, way in ways.items()]
    ceilings.keep([*known, make_ceiling(1e12, framework="old")])
    shown = command("ceilings", "--known").stdout
    assert all(f"{name} {way} " in shown for name, way in ways.items())
