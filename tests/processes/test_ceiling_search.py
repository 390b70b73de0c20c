from __future__ import annotations

import json

import msgspec
import pytest
from support.records import make_ceiling, make_record

from benchmarker.cli import ceiling_measurement
from benchmarker.cli.commands.ceilings import _missing
from benchmarker.planning import ceiling_search
from benchmarker.planning.ceiling_search import (
    MEASURE,
    QUICK,
    SEARCH,
    ceilings_of,
    final,
    rate_of,
    resource_of,
    search,
)
from benchmarker.records import ceilings, store
from benchmarker.records.record import Blocks, CostPart, Failure
from benchmarker.running import ceilings as measuring


def make_product(side: int, step_s: float, *, trial: int = 0, number: int = 0, **fields):
    """A trial of a product of squares; `number` tells the cases of a run apart."""
    problem = fields.pop("problem", "gemm")
    params = {"m": side} if problem == "gemm" else {"n": side}
    case = {"framework": fields.pop("framework", "toy"), "measuring": SEARCH}
    record = make_record(step_s, trial=trial, case=case, design={"case_number": number}, **fields)
    case = msgspec.structs.replace(record.case, problem=problem, params=params)
    return msgspec.structs.replace(record, case=case, cost=CostPart(2 * side**3, 0, 12 * side, 1, None))


def test_a_rate_is_by_the_median_block():
    record = make_product(10, 1.0, blocks=Blocks(4, [round(1e9), round(8e9), round(2e9)], "blocks"))
    assert rate_of(record) == pytest.approx(2000 / 0.5)
    memory = make_product(10, 2.0, problem="stream")
    assert rate_of(memory) == pytest.approx(60)
    assert rate_of(make_product(10, 1.0, status="failed", error=Failure("timeout", "late", "timed"))) is None


def test_the_winner_is_by_the_median_of_its_trials_and_is_measured_anew():
    """At side 10 one trial of three is fast by luck; 20 is faster in truth."""
    lucky = [make_product(10, time, trial=trial) for trial, time in enumerate((1.0, 0.1, 1.0))]
    steady = [make_product(20, time, trial=trial, number=1) for trial, time in enumerate((2.0, 2.0, 2.0))]
    memory = [make_product(5, 1.0, number=2, problem="stream")]
    other = [make_product(10, 9.0, number=3, framework="other")]
    plan = final([*lucky, *steady, *memory, *other], trials=4)
    assert [(case.problem, case.framework, case.params) for case in plan.cases] == [
        ("gemm", "toy", {"m": 20}),
        ("stream", "toy", {"n": 5}),
        ("gemm", "other", {"m": 10}),
    ]
    assert plan.trials == 4
    assert all(case.measuring == MEASURE for case in plan.cases)


def test_the_ceiling_is_of_the_new_trials_alone():
    searched = [make_product(10, 0.001), make_product(20, 0.001, number=1)]
    times = (1.0, 2.0, 4.0)
    measured = [make_product(20, time, trial=trial, run="again") for trial, time in enumerate(times)]
    broken = make_product(20, 1.0, trial=3, run="again", status="failed", error=Failure("killed", "gone", "timed"))
    (found,) = ceilings_of(searched, [*measured, broken])
    assert (found.value, found.low, found.high) == (8000.0, 4000.0, 16000.0)
    assert (found.trials, found.searched, found.params, found.run_id) == (3, 2, {"m": 20}, "again")
    assert (found.resource, found.framework, found.execution, found.version) == ("compute", "toy", "eager", "1.0")


def test_nothing_is_final_where_all_failed():
    failed = make_product(10, 1.0, status="failed", error=Failure("killed", "gone", "timed"))
    assert final([failed], 3) is None
    assert ceilings_of([failed], [failed]) == []


@pytest.fixture
def caches(monkeypatch):
    """Caches of 96 MiB together, in a machine with so much memory, bytes."""

    def of(memory_bytes=2**40):
        monkeypatch.setattr(ceiling_search, "last_cache_bytes", lambda: 96 * 2**20)
        monkeypatch.setattr(ceiling_search, "memory_bytes", lambda: memory_bytes)
        return 96 * 2**20

    return of


def test_arrays_larger_than_memory_allows_are_not_tried(caches):
    caches(memory_bytes=6 * 2**30)
    plan = search([{"problem": "stream", "framework": "numpy", "op": "copy"}])
    assert [case.params["n"] for case in plan.cases] == [6 * 2**30 // 18 // 4]
    caches(memory_bytes=2**30)
    plan = search([{"problem": "stream", "framework": "numpy", "op": "copy"}])
    assert [4 * case.params["n"] for case in plan.cases] == [2**27]


def test_a_search_tries_sizes_and_arrays_beyond_the_last_cache(caches):
    of_caches = caches()
    plan = search(
        [{"problem": "gemm", "framework": "numpy"}, {"problem": "stream", "framework": "numpy", "op": "copy"}]
    )
    sides = {(case.params["m"], case.params["n"], case.params["k"]) for case in plan.cases if case.problem == "gemm"}
    assert len(sides) >= 5
    assert all(m == n == k for m, n, k in sides)
    (arrays,) = [case.params["n"] * 4 for case in plan.cases if case.problem == "stream"]
    assert arrays >= 4 * of_caches > 2**27
    assert plan.trials == 2


@pytest.mark.parametrize(("resource", "rows"), [("matvec", 1), ("matvec_8", 8)])
def test_a_search_tries_weights_stored_either_way_that_no_cache_holds(caches, resource, rows):
    of_caches = caches()
    plan = search([{"problem": "gemm", "framework": "numpy", "m": rows}])
    assert [case.params["transpose_b"] for case in plan.cases] == [False, True]
    for case in plan.cases:
        assert (resource_of(case), case.params["m"]) == (resource, rows)
        assert 4 * 4 * case.params["k"] * case.params["n"] > 0.99 * 4 * of_caches  # four take turns


@pytest.mark.parametrize(("resource", "rows"), [("matvec_small", 1), ("matvec_8_small", 8)])
def test_a_search_tries_small_matrices_that_no_cache_holds_together(caches, resource, rows):
    of_caches = caches()
    plan = search([{"problem": "mlp", "framework": "numpy", "batch_size": rows}])
    assert [case.params["by_output"] for case in plan.cases] == [False, True]
    for case in plan.cases:
        assert (resource_of(case), case.params["batch_size"], case.params["width"]) == (resource, rows, 1024)
        assert 4 * case.params["layers"] * 1024**2 > 0.99 * 4 * of_caches


def test_products_of_few_rows_are_rated_by_their_bytes_and_win_apart():
    vector, product = make_product(1, 2.0), make_product(10, 1.0, number=1)
    assert (rate_of(vector), rate_of(product)) == (12 / 2, 2000)
    assert [resource_of(case) for case in final([vector, product], 1).cases] == ["matvec", "compute"]
    found = ceilings_of([vector, product], [vector, product])
    assert [(each.resource, each.value, each.searched) for each in found] == [("matvec", 6, 1), ("compute", 2000, 1)]


@pytest.fixture
def short(monkeypatch):
    """Cuts down the sizes and times of a survey; all else is as the command does it."""
    cut = {
        "CPU_SIDES": (64, 128),
        "QUICK_CPU_SIDES": (64, 128),
        "LEAST_ARRAY_BYTES": 2**20,
        "MATRIX_K": 64,
        "SMALL_WIDTH": 32,
        "last_cache_bytes": lambda: 0,
        "QUICK": msgspec.structs.replace(QUICK, warmup_steps=1, blocks=3, seconds=0.05),
    }
    for name, value in cut.items():
        monkeypatch.setattr(ceiling_search, name, value)


@pytest.mark.slow
def test_a_survey_measures_every_kind_in_one_process_and_keeps_no_records(cli, short, tmp_path):
    done = cli("ceilings", "--framework=numpy", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kinds = ["compute", "matvec", "matvec_8", "matvec_8_small", "matvec_small", "memory"]
    assert sorted(each["resource"] for each in found) == kinds
    assert {(each["method"], each["trials"], each["run_id"]) for each in found} == {("quick", 1, None)}
    assert all(0 < each["low"] <= each["value"] <= each["high"] for each in found)
    assert {each["searched"] for each in found} == {1, 2}  # the alternatives were tried too
    assert "trying 11 sizes in 1 process: about " in done.stderr
    assert "[1/1] numpy, size 11 of 11: done" in done.stderr
    assert "--thorough measures them in about " in done.stderr
    assert not (tmp_path / "results").exists()
    assert json.loads(cli("ceilings", "--known", "--json").stdout) == found


@pytest.mark.slow
def test_a_survey_tries_the_alternatives_last_and_leaves_them_when_the_time_is_up(cli, short, monkeypatch):
    monkeypatch.setattr(measuring, "SURVEY_S", 0.0)
    done = cli("ceilings", "--framework=numpy", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 6
    assert {each["searched"] for each in found} == {1}


@pytest.mark.slow
def test_roofline_and_predict_measure_what_they_lack(cli, short, monkeypatch):
    monkeypatch.setattr(ceiling_measurement.registry, "implementing", lambda _: ["numpy"])
    run = cli("run", "--framework=numpy", "--problem=gemm", "--m=64", "--n=64", "--k=64", "--blocks=3")
    assert run.returncode == 0
    lacking = cli("roofline", "results")
    assert lacking.returncode == 2
    assert "run `benchmarker ceilings --precision=fp32` (a few minutes), or add --measure" in lacking.stderr
    assert "no ceiling is known: add --measure (a few minutes)" in cli("predict", "--problem=gpt2").stderr
    measured = cli("roofline", "results", "--measure")
    assert measured.returncode == 0, measured.stderr
    assert "quickly measured" in " ".join(measured.stdout.split())
    predicted = cli("predict", "--problem=gpt2", "--measure")
    assert predicted.returncode == 0, predicted.stderr
    assert "trying" not in predicted.stderr  # they are known by now
    for words in (("roofline", "results", "--roof=vendor"), ("predict", "--problem=gpt2", "--roof=vendor")):
        assert cli(*words, "--measure").returncode == 2


def test_a_thorough_ceiling_stays_until_a_thorough_one_replaces_it():
    thorough, quick = make_ceiling(2.0), make_ceiling(3.0, method="quick", measured_at="2099-01-01T00:00:00Z")
    assert ceilings.keep([quick]) == []
    assert ceilings.known().known == (quick,)
    assert ceilings.keep([thorough]) == []
    assert ceilings.keep([quick]) == [thorough]
    known = ceilings.known()
    assert known.known == (thorough,)
    both = ceilings.Ceilings((quick, thorough))  # a thorough one that came with records, and a quick one of the user
    assert both.of(thorough.device, "compute", "fp32") == thorough


@pytest.mark.slow
def test_what_a_survey_could_not_measure_is_named(cli, short, monkeypatch):
    """The third size fails, and no other is begun: the first two have ceilings, and all else is named."""
    real = measuring.run_worker

    def run_worker(request, environment, timeout_s, log, on_event):
        cases = (*request.cases[:2], msgspec.structs.replace(request.cases[2], problem="none"))
        return real(msgspec.structs.replace(request, cases=cases), environment, timeout_s, log, on_event)

    monkeypatch.setattr(measuring, "run_worker", run_worker)
    done = cli("ceilings", "--framework=numpy", "--json")
    assert done.returncode == 1
    assert sorted(each["resource"] for each in json.loads(done.stdout)) == ["compute", "matvec"]
    assert "failed: " in done.stderr
    assert "no problem is named 'none'" in done.stderr
    assert "not measured: memory numpy fp32" in done.stderr


@pytest.mark.slow
def test_ceilings_are_measured_kept_and_shown(cli, tmp_path, monkeypatch):
    """Sizes and times of a real search are cut down; all else is as the command does it."""
    short = {
        "CPU_SIDES": (64, 128),
        "LEAST_ARRAY_BYTES": 2**20,
        "MATRIX_K": 64,
        "SMALL_WIDTH": 32,
        "last_cache_bytes": lambda: 0,
        "SEARCH": msgspec.structs.replace(SEARCH, blocks=3, seconds=0.1),
        "MEASURE": msgspec.structs.replace(MEASURE, preheat=False, blocks=3, seconds=0.1),
    }
    for name, value in short.items():
        monkeypatch.setattr(ceiling_search, name, value)
    words = ("ceilings", "--thorough", "--framework=numpy", "--precision=fp32,fp64", "--trials=2")
    done = cli(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    of_products = [
        (resource, precision)
        for resource in ("compute", "matvec", "matvec_8", "matvec_8_small", "matvec_small")
        for precision in ("fp32", "fp64")
    ]
    assert sorted((each["resource"], each["precision"]) for each in found) == sorted([*of_products, ("memory", "fp32")])
    assert all(each["unit"] == "B/s" for each in found if each["resource"] == "matvec_8")
    assert all(each["low"] <= each["value"] <= each["high"] and each["trials"] == 2 for each in found)
    assert {each["method"] for each in found} == {"thorough"}
    assert "about " in done.stderr.splitlines()[0] + done.stderr.splitlines()[1]  # the time is told from the start
    assert json.loads(cli("ceilings", "--known", "--json").stdout) == found
    assert "left out" in done.stderr  # NumPy does no triad
    run = cli("run", "--framework=numpy", "--problem=gemm", "--m=64", "--n=64", "--k=64", "--blocks=3")
    assert run.returncode == 0
    shown = cli("show", "results", "--json")
    derived = [each["metrics"] for each in json.loads(shown.stdout)]
    assert all(metrics["roof_share"]["value"] > 0 for metrics in derived)
    assert all(metrics["mfu_measured"]["value"] is not None for metrics in derived)
    roofline = cli("roofline", "results")
    assert roofline.returncode == 0, roofline.stderr
    assert "ridge at" in roofline.stdout
    assert "is complete: nothing is left to resume" in cli(*words, "--resume").stderr
    assert len(list((tmp_path / "results").glob(f"*/{store.CEILINGS}"))) == 1


def test_what_was_asked_for_and_has_no_ceiling_is_named():
    plan = search(
        [{"problem": "gemm", "framework": "numpy"}, {"problem": "stream", "framework": "numpy", "op": "copy"}]
    )
    memory = make_ceiling(1.0, "memory", framework="numpy")
    assert _missing(plan, ["fp32", "bf16"], [memory]) == ["compute numpy fp32", "bf16"]
    assert _missing(plan, ["fp32"], [memory, make_ceiling(1.0, framework="numpy")]) == []


def test_the_vendors_peak_stands_beside_where_it_is_known(command):
    ceilings.keep([make_ceiling(1e9)])
    plain = command("ceilings", "--known").stdout
    assert "vendor" not in plain
    assert "1 GFLOP/s" in plain
    card = ceilings.DeviceKey("cuda", "NVIDIA A100-SXM4-40GB", None, None)
    ceilings.keep([make_ceiling(234e12, device=card, precision="bf16"), make_ceiling(1.244e12, "memory", device=card)])
    done = command("ceilings", "--known")
    compute, memory = (line for line in done.stdout.splitlines() if "A100" in line)
    assert compute.split()[-3:] == ["312", "TFLOP/s", "75%"]
    assert memory.split()[-3:] == ["1.555", "TB/s", "80%"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--precision="], "--precision names no precision"),
        (["--precision=fp31"], "precision=fp31: not one of fp64, "),
        (["--framework=nump"], "did you mean"),
        (["--trials=0"], "--trials"),
        (["--trials=2"], "--trials is of a thorough measurement; add --thorough, or leave it out"),
        (["--resume"], "--resume is of a thorough measurement; add --thorough, or leave it out"),
        (["--results=x"], "--results is of a thorough measurement; add --thorough, or leave it out"),
        (
            ["--known", "--precision=fp64"],
            "--known measures nothing and shows all stored ceilings; leave --precision out",
        ),
    ],
)
def test_wrong_options_are_refused(command, options, text):
    done = command("ceilings", *options)
    assert done.returncode == 2
    assert text in done.stderr
