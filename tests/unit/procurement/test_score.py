"""Scores: of records made by hand, and the command on results and axes."""

import json
import math
import os
import subprocess
import sys

import msgspec
import pytest
from support.records import make_energy, make_record

from benchmarker import Metric
from benchmarker.comparing.judge import compare
from benchmarker.comparing.matching import between
from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement.completeness import MissingTrials
from benchmarker.procurement.costs import Costs, Inputs
from benchmarker.procurement.score import default_metrics, score
from benchmarker.procurement.sides import of_axis, of_results
from benchmarker.procurement.weights import Weight, Weights
from benchmarker.records.plan import make_plan

FAILURE = {"kind": "out_of_memory", "message": "too much", "stage": "timed"}
EVEN = [0.99, 1.01, 0.98, 1.02, 0.97, 1.03, 1.0]
"""Factors of seven trials, the same on both sides: every block has the case's ratio exactly."""


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def side(name, steps, *, framework="toy", trials=7, joules=None, **more):
    """A run with one case for each step time, told apart by their seed."""
    return [
        make_record(
            step * EVEN[trial],
            run=name,
            trial=trial,
            case={"framework": framework, "seed": number},
            design={"case_number": number},
            **({"energy": make_energy(joules)} if joules else {}),
            **more,
        )
        for number, step in enumerate(steps)
        for trial in range(trials)
    ]


def failed(record):
    return msgspec.convert({**msgspec.to_builtins(record), "status": "failed", "error": FAILURE}, type(record))


def scored(derive, one, two, metrics=("samples_per_s",), **more):
    return scores(derive, ("old", one), ("new", two), metrics=metrics, **more).scores[0]


def scores(derive, *sides, metrics=("samples_per_s",), **more):
    given = {"weights": Weights(), "costs": None, "required": ["samples_per_s"], "rules": Rules()} | more
    return score(of_results([(*each, ()) for each in sides]), metrics, derive, **given)


def mean(found):
    return found.metrics[0].mean


def weights(*pairs):
    return Weights(tuple(Weight(match, weight) for match, weight in pairs))


def test_a_score_is_the_weighted_geometric_mean_by_hand(derive):
    one, two = side("a", [1.0, 1.0, 1.0]), side("b", [0.5, 0.8, 1.25])
    plain = scored(derive, one, two)
    assert mean(plain).ratio == pytest.approx((2 * 1.25 * 0.8) ** (1 / 3))
    heavy = scored(derive, one, two, weights=weights(({"seed": 0}, 3.0), ({"seed": 2}, 0.5)))
    assert mean(heavy).ratio == pytest.approx((2**3 * 1.25 * 0.8**0.5) ** (1 / 4.5))
    assert [case.weight for case in heavy.metrics[0].by_case] == [3, 1, 0.5]
    assert [case.ratio for case in heavy.metrics[0].by_case] == pytest.approx([2, 1.25, 0.8])
    assert (heavy.metrics[0].scored, heavy.metrics[0].cases) == (3, 3)
    assert heavy.missing == {}


def test_the_metrics_of_a_trial_are_derived_once_for_all_that_are_scored(derive):
    asked = []
    scored(
        lambda record: asked.append(record.trial_id) or derive(record),
        side("a", [1.0]),
        side("b", [2.0]),
        ["samples_per_s", "samples_per_J"],
    )
    assert len(asked) == len(set(asked)) == 14


def test_a_metric_says_that_it_is_scored():
    known = {"x": Metric(1.0, "1", "higher", scored=True), "samples_per_s": Metric(2.0, "1/s", "higher", scored=True)}
    assert default_metrics(known | {"y": Metric(1.0, "1", "higher")}) == ["samples_per_s", "x"]


def test_equal_weights_are_the_geometric_mean_of_compare(derive):
    one, two = side("a", [1.0, 1.1]), side("b", [0.5, 0.8])
    (plain,) = compare(between([("old", one), ("new", two)]).matches, Rules("samples_per_s"), derive).geometric_means
    equal = weights(({}, 7.0))
    assert mean(scored(derive, one, two)) == plain
    found = mean(scored(derive, one, two, weights=equal))
    assert (found.ratio, found.low, found.high) == pytest.approx((plain.ratio, plain.low, plain.high))


def test_a_metric_that_is_better_lower_is_turned_and_swapping_inverts(derive):
    one, two = side("a", [1.0, 1.0]), side("b", [0.5, 0.8])
    rate, time = scored(derive, one, two, ["samples_per_s", "step_time_median_s"]).metrics
    assert time.better == "lower"
    assert time.mean.better == "higher"
    assert (time.mean.ratio, time.mean.low, time.mean.high) == pytest.approx(
        (rate.mean.ratio, rate.mean.low, rate.mean.high)
    )
    assert [each.mean.verdict for each in (rate, time)] == ["faster", "faster"]
    assert time.by_case[0].ratio == pytest.approx(2)
    back = mean(scored(derive, two, one))
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx(
        (rate.mean.ratio, rate.mean.low, rate.mean.high)
    )
    assert back.verdict == "slower"


def test_a_case_of_weight_0_is_as_if_absent_but_for_its_failures(derive):
    one, two = side("a", [1.0, 1.0, 1.0]), side("b", [0.5, 0.8, 9.0])
    without = scored(derive, one[:14], two[:14])
    zero = scored(derive, one, two, weights=weights(({"seed": 2}, 0.0)))
    assert mean(zero) == mean(without)
    assert (zero.metrics[0].scored, zero.metrics[0].cases) == (2, 2)
    broken = scored(derive, one, [*two[:14], *map(failed, two[14:])], weights=weights(({"seed": 2}, 0.0)))
    assert mean(broken) == mean(without)
    assert broken.missing == {"trials failed": 7}
    none = scored(derive, one, two, weights=weights(({}, 0.0)))
    assert (mean(none), none.metrics[0].reason) == (None, "every case has weight 0")
    assert none.missing == {"scores of samples_per_s": 1}
    assert scored(derive, one, two, weights=weights(({"sed": 2}, 5.0))).missing == {"weights of no case": 1}


def test_a_side_with_failed_cases_is_never_complete(derive):
    one, two = side("a", [1.0, 1.0]), side("b", [0.5, 0.8])
    two = [failed(record) if record.case.seed == 1 else record for record in two]
    found = scored(derive, one, two)
    assert (found.contender.ok, found.contender.asked, found.contender.success) == (7, 14, 0.5)
    assert found.baseline.success == 1
    assert found.contender.failed == ["nap ms=1.0 fp32 in toy on cpu, seed=1: 7 x out_of_memory: too much"]
    assert (found.metrics[0].scored, found.metrics[0].cases) == (1, 2)
    assert mean(found).ratio == pytest.approx(2)
    assert found.missing == {"trials failed": 7, "cases in which trials have no samples_per_s": 1}


def test_one_failed_trial_is_enough(derive):
    one, two = side("a", [1.0, 1.0]), side("b", [0.5, 0.8])
    found = scored(derive, one, [failed(two[0]), *two[1:]])
    assert found.missing == {"trials failed": 1}
    assert found.metrics[0].scored == 2


def test_what_the_sides_differ_in_beside_the_machine_is_told(derive):
    found = scored(derive, side("a", [1.0, 1.0]), side("b", [0.5, 0.8], framework="x"))
    assert found.notes == ["(2 of 2 cases) the sides differ in framework toy → x"]
    records = [*side("a", [1.0]), *side("b", [0.5], framework="x")]
    by = of_axis(records, (), "framework", None, None)
    given = {"weights": Weights(), "costs": None, "required": [], "rules": Rules()}
    assert score(by, ["samples_per_s"], derive, **given).scores[0].notes == []


def test_a_case_without_a_counterpart_is_counted(derive):
    found = scored(derive, side("a", [1.0, 1.0, 1.0]), side("b", [0.5, 0.8]))
    assert (found.metrics[0].scored, found.metrics[0].cases) == (2, 3)
    assert found.unmatched == ["old: seed=2"]
    assert found.missing == {"cases without a counterpart": 1}


def test_no_energy_is_null_with_the_reason_and_incomplete_only_where_asked_for(derive):
    one, two = side("a", [1.0], joules=50.0), side("b", [0.5], joules=50.0)
    names = ["samples_per_s", "samples_per_J"]
    assert scored(derive, one, two, names).metrics[1].mean.ratio == pytest.approx(1)
    bare = [msgspec.structs.replace(each, energy=None, reasons={**each.reasons, "energy": "none"}) for each in two]
    found = scored(derive, one, bare, names)
    assert (found.metrics[1].mean, found.metrics[1].reason) == (None, "new: no trial has a samples_per_J: none")
    assert (found.metrics[1].scored, found.metrics[1].cases, found.missing) == (0, 1, {})
    asked = scored(derive, one, bare, names, required=names)
    assert asked.missing == {"cases in which trials have no samples_per_J": 1}
    partly = scored(derive, one, [*two[1:], bare[0]], names, required=names)
    assert partly.metrics[1].by_case[0].missing == ["new: 1 of 7 trials has no samples_per_J: none"]
    assert partly.missing == asked.missing


def test_samples_for_money_by_hand(derive):
    one, two = side("a", [1.0], joules=4_000.0), side("b", [0.5], joules=16_000.0)
    free = Inputs(price=0, lifetime_years=1, utilisation=1, electricity_price_per_kWh=3.6, pue=1)
    dear = Inputs(price=63072, lifetime_years=2, utilisation=0.5, electricity_price_per_kWh=3.6, pue=1.5)
    costs = Costs("EUR", {"baseline": free, "new": dear})
    every = scores(derive, ("old", one), ("new", two), metrics=["samples_per_s", "samples_per_cost"], costs=costs)
    (found,) = every.scores
    # baseline: 100 W at 3.6 EUR/kWh = 1e-4 EUR/s; 2 samples in 1 s -> 20,000 for a euro
    # contender: 63072 EUR / (2 a * 31,536,000 s/a * 0.5) = 2e-3 EUR/s, and 400 W * 1.5 * 1e-6 EUR/J = 6e-4 EUR/s
    assert found.metrics[1].by_case[0].baseline_value == pytest.approx(20_000)
    assert found.metrics[1].by_case[0].contender_value == pytest.approx(4 / 2.6e-3)
    assert found.metrics[1].mean.ratio == pytest.approx(4 / 2.6e-3 / 20_000)
    assert [each.cost_per_hour for each in every.costs] == pytest.approx([0.36, 9.36])
    assert [(each.measured, each.used_power_W) for each in every.costs] == [(7, 100), (7, 400)]


@pytest.fixture
def results(tmp_path):
    """Runs `old` and `new` of two cases, with their plans."""
    for name, steps in (("old", [1.0, 1.0]), ("new", [0.5, 0.8])):
        folder = tmp_path / name
        folder.mkdir()
        records = side(name, steps)
        plan = make_plan([records[0].case, records[7].case], 7, left_out=["tf32: the device does not do it"])
        (folder / "plan.json").write_bytes(atomic.encode(msgspec.structs.replace(plan, run_id=name)))
        for record in records:
            (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    return tmp_path


def test_the_command_scores_two_results(command, results):
    done = command("suite", "score", "old", "new")
    assert done.returncode == 0
    assert "above 1, the contender is better" in done.stdout
    assert "A  old: 7 of 7" not in done.stdout
    assert "A  old: 14 of 14 trials succeeded (100%)" in done.stdout
    assert "left out of the runs: tf32: the device does not do it" in done.stdout
    assert "Welch" not in done.stdout
    verbose = command("suite", "score", "old", "new", "--verbose").stdout
    assert "weighted geometric means with 95% intervals, unpaired: Welch-Satterthwaite" in verbose
    found = json.loads(command("suite", "score", "old", "new", "--json").stdout)
    assert found["scores"][0]["metrics"][0]["mean"]["ratio"] == pytest.approx(math.sqrt(2 * 1.25))
    assert found["missing"] == {}
    (back,) = json.loads(command("suite", "score", "old", "new", "--baseline=new/", "--json").stdout)["scores"]
    assert back["metrics"][0]["mean"]["ratio"] == pytest.approx(1 / math.sqrt(2 * 1.25))
    assert back["contender"]["name"] == "old"
    assert command("suite", "score", "old", "new", "other", "--contender=new").stderr == "not scored: other\n"


@pytest.mark.parametrize("words", [("suite", "score"), ("compare",)])
def test_sides_with_long_paths_are_called_by_what_distinguishes_them(command, results, words):
    (results / "offers-of-the-year").mkdir()
    for name in ("old", "new"):
        (results / name).rename(results / "offers-of-the-year" / name)
    done = command(*words, "offers-of-the-year/old", "offers-of-the-year/new")
    assert done.returncode == 0
    assert "new is " in done.stdout
    assert "offers-of-the-year" not in done.stdout


@pytest.mark.parametrize("words", [("suite", "score"), ("compare",)])
def test_different_work_is_refused_with_the_remedy(command, results, words):
    folder = results / "other"
    folder.mkdir()
    for record in side("other", [1.0]):
        other = msgspec.structs.replace(record.case, precision="fp64", seed=0)
        (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(msgspec.structs.replace(record, case=other)))
    for record in sorted((results / "new").glob("new-*-1.json")):
        record.unlink()
    (results / "new" / "plan.json").unlink()
    done = command(*words, "new", "other")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "benchmarker: error: new and other are different work: precision fp32 and fp64; leave one out, "
        "or compare them nevertheless with --by=precision\n"
    )
    assert command(*words, "new", "other", "--by=precision").returncode == 0


def test_the_command_scores_two_values_of_an_axis(command, tmp_path):
    for framework, step in (("x", 1.0), ("y", 0.5), ("z", 4.0)):
        for record in side(framework, [step], framework=framework):
            (tmp_path / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    done = command("suite", "score", ".", "--by=framework", "--contender=Z", "--json")
    assert done.returncode == 0
    (found,) = json.loads(done.stdout)["scores"]
    assert (found["baseline"]["name"], found["contender"]["name"]) == ("framework=x", "framework=z")
    assert found["metrics"][0]["mean"]["ratio"] == pytest.approx(0.25)
    several = json.loads(command("suite", "score", ".", "--by=framework", "--baseline=y", "--json").stdout)
    assert [(each["side"], each["rank"]) for each in several["rankings"][0]["places"]] == [
        ("framework=y", 1),
        ("framework=x", 2),
        ("framework=z", 3),
    ]


def test_trials_that_were_not_run_lower_the_success(command, results):
    for path in sorted((results / "new").glob("new-*-1.json"))[-2:]:
        path.unlink()
    done = command("suite", "score", "old", "new")
    assert done.returncode == 1
    assert "B  new: 12 of 14 trials succeeded (85.7%)" in done.stdout
    assert "NOT RUN in B: nap ms=1.0 fp32 in toy on cpu, seed=1: 2 of run new" in done.stdout
    assert done.stdout.endswith("INCOMPLETE: 2 trials not run\n")


def test_a_case_that_one_side_lacks_counts_in_the_success_of_the_other(command, results):
    """Otherwise its trial that was not run would count, and those that were would not."""
    old = sorted((results / "old").glob("old-*.json"))
    lacking = json.loads(old[0].read_bytes())["case"]
    for path in old:
        if json.loads(path.read_bytes())["case"] == lacking:
            path.unlink()
    done = command("suite", "score", "old", "new", "--json")
    asked = [(side["asked"], side["ok"]) for side in json.loads(done.stdout)["sides"]]
    gone = asked[0][0] - asked[0][1]
    assert asked == [(14, 14 - gone), (14, 14)]
    assert gone > 0


def test_a_file_that_cannot_be_read_is_named_and_makes_the_score_incomplete(command, results):
    (results / "new" / "cut.json").write_text("{")
    done = command("suite", "score", "old", "new", "--json")
    assert done.returncode == 1
    assert "cut.json" in done.stderr
    assert json.loads(done.stdout)["missing"] == {"files that cannot be read": 1}


def test_weights_and_costs_are_printed(command, results):
    (results / "weights.toml").write_text('[[weight]]\nmatch = {problem = "nap", seed = 1}\nweight = 3\n')
    (results / "cost.toml").write_text(
        'currency = "EUR"\nlifetime_years = 5\nutilisation = 0.5\nelectricity_price_per_kWh = 0.36\npue = 1.25\n'
        "power_W = 800\n[side.old]\nprice = 31536\n[side.contender]\nprice = 63072\n"
    )
    done = command("suite", "score", "old", "new", "--weights=weights.toml", "--cost=cost.toml")
    assert done.returncode == 0
    assert "weights: 3 where problem=nap seed=1; otherwise 1" in done.stdout
    assert (
        "A  1.8 EUR/h: price 31536 EUR, lifetime 5 years, utilisation 50%, power 800 W "
        "(from the cost file, not measured), PUE 1.25, electricity 0.36 EUR/kWh" in done.stdout
    )
    found = json.loads(command("suite", "score", "old", "new", "--cost=cost.toml", "--json").stdout)
    assert found["currency"] == "EUR"
    assert found["costs"][1]["inputs"]["price"] == 63072
    # twice the price: (0.8 + 0.1) / (0.4 + 0.1) times the cost of a second
    assert found["scores"][0]["metrics"][2]["mean"]["ratio"] == pytest.approx(math.sqrt(2.5) / 1.8)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["old"], "a score needs two different results; name another one, or an axis with --by"),
        (["old", "old"], "a score needs two different results"),
        (["old", "new", "--baseline=older"], "--baseline=older is not one of the results: old, new"),
        (["old", "new", "--baseline=old", "--contender=old"], "a score needs two different results"),
        (["old", "new", "--by=seed", "--baseline=9"], "--baseline=9: no record has seed=9; there are: 0, 1"),
        (["old", "new", "--by=seed", "--contender=9"], "--contender=9: no record has seed=9; there are: 0, 1"),
        (["old", "new", "--by=seed", "--contender=0"], "baseline and contender are both seed=0; name two of: 0, 1"),
        (["old", "none"], "no record was read from none"),
        (["old", "new", "--metric=,"], "--metric names no metric"),
        (["old", "new", "--metric=speed"], "no metric is named 'speed'; there are: "),
        (["old", "new", "--metric=samples_per_cost"], "--metric=samples_per_cost and --cost=FILE go together"),
        (
            ["old", "new", "--metric=cost_per_million_output_tokens"],
            "--metric=cost_per_million_output_tokens and --cost=FILE go together",
        ),
        (["old", "new", "--cost=none.toml"], "cannot read none.toml: No such file"),
        (["old", "new", "--weights=none.toml"], "cannot read none.toml: No such file"),
    ],
)
def test_mistakes_are_told_in_one_line(command, results, args, message):
    done = command("suite", "score", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_not_run_belongs_to_the_side_of_its_case():
    records = [record for name in "xyz" for record in side(name, [1.0], framework=name)]
    unrun = [MissingTrials("a", records[7 * number].case, number + 1) for number in range(3)]
    found = of_axis(records, unrun, "framework", "x", "z")
    assert [[each.trials for each in several] for several in found.unrun] == [[1], [3]]
    assert not found.astray
    hosts = [
        msgspec.structs.replace(each, machine=msgspec.structs.replace(each.machine, host=each.case.framework))
        for each in side("a", [1.0])[:4]
    ]
    one, two = hosts[:2], side("b", [1.0])
    of_host = of_axis([*one, *two], unrun, "host", None, None)
    assert [each.trials for each in of_host.astray] == [1, 2, 3]


def test_a_compiled_side_is_told_from_one_that_is_not():
    plain, compiled = side("a", [1.0]), side("b", [1.0])
    compiled = [msgspec.structs.replace(r, case=msgspec.structs.replace(r.case, compile=True)) for r in compiled]
    records = [*plain, *compiled, *side("c", [1.0], framework="x")]
    unrun = [MissingTrials("a", plain[0].case, 1), MissingTrials("b", compiled[0].case, 2)]
    found = of_axis(records, unrun, "framework", "toy,eager", "toy,compiled")
    assert [[each.trials for each in several] for several in found.unrun] == [[1], [2]]


def test_notes_have_the_same_order_in_every_process(tmp_path):
    code = (
        "from support.records import make_energy, make_record\n"
        "import msgspec\n"
        "from benchmarker.comparing.matching import between\n"
        "from benchmarker.procurement.score import _notes\n"
        "one = make_record(run='a', energy=make_energy(1.0, id='GPU-a'))\n"
        "machine = msgspec.structs.replace(one.machine, host='other')\n"
        "two = make_record(run='b', energy=make_energy(1.0, id='GPU-b'), machine=machine)\n"
        "print(_notes(between([('a', [one]), ('b', [two])]).matches))\n"
    )
    said = set()
    for seed in "1234":
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        said.add(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
    assert len(said) == 1
