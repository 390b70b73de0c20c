"""Several sides are ranked; those that do not differ significantly share a rank."""

import json
import re

import msgspec
import numpy as np
import pytest
from support.records import QUIET, make_record

from benchmarker import UserError
from benchmarker.comparing.formatting import SCORE, SPEED
from benchmarker.comparing.results import GeometricMean, Rules
from benchmarker.files import atomic
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement.costs import Costs, Inputs
from benchmarker.procurement.ranking import in_words, rank
from benchmarker.procurement.score import score
from benchmarker.procurement.sides import of_axis, of_results
from benchmarker.procurement.weights import Weights
from benchmarker.stats.verdict import holm

BUSY = msgspec.structs.replace(QUIET, other_busy_cores=80.0)


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def offer(name, steps, *, trials=8, scatter=0.01, seed=1, **more):
    """A run with a case for each step time, told apart by their seed; other sides scatter independently."""
    rng = np.random.default_rng([seed, *name.encode()])
    return [
        make_record(
            float(step * np.exp(rng.normal(0, scatter))),
            run=name,
            trial=trial,
            case={"seed": number},
            design={"case_number": number, "session": trial // 2},
            **more,
        )
        for number, step in enumerate(steps)
        for trial in range(trials)
    ]


def scored(derive, *results, metrics=("samples_per_s",), costs=None):
    made = of_results([(records[0].run_id, records, ()) for records in results])
    return score(made, metrics, derive, weights=Weights(), costs=costs, required=metrics[:1], rules=Rules())


def places(found, metric=0):
    return [(each.side, each.rank, (*each.ties,)) for each in found.rankings[metric].places]


def test_sides_are_ranked_by_their_score_over_the_baseline(derive):
    found = scored(derive, offer("a", [1.0, 1.0]), offer("b", [2.0, 2.0]), offer("c", [0.5, 0.8]))
    assert places(found) == [("c", 1, ()), ("a", 2, ()), ("b", 3, ())]
    assert [side.name for side in found.sides] == ["a", "b", "c"]
    assert found.rankings[0].places[0].mean == found.scores[1].metrics[0].mean
    assert found.rankings[0].places[1].mean is None
    assert found.rankings[0].places[0].mean.ratio == pytest.approx((2 * 1.25) ** 0.5, rel=0.02)
    assert [(mean.baseline, mean.contender, mean.verdict) for mean in found.rankings[0].pairs] == [
        ("a", "b", "slower"),
        ("a", "c", "faster"),
        ("b", "c", "faster"),
    ]


def test_sides_that_cannot_be_told_apart_share_a_rank(derive):
    found = scored(derive, offer("a", [1.0]), offer("b", [0.7], scatter=0.03), offer("c", [0.695], scatter=0.03))
    first, second, last = places(found)
    assert {first, second} == {("b", 1, ("c",)), ("c", 1, ("b",))}
    assert last == ("a", 3, ())


def mean(one, two, verdict, ratio=1.0):
    empty = dict.fromkeys(GeometricMean.__struct_fields__)
    known = {"baseline": one, "contender": two, "verdict": verdict, "ratio": ratio, "better": "higher"}
    return GeometricMean(**{**empty, **known})


def test_ties_need_not_be_transitive():
    means = {
        (0, 1): mean("a", "b", "undecided", 1.05),
        (0, 2): mean("a", "c", "faster", 1.1),
        (1, 2): mean("b", "c", "same", 1.04),
    }
    found = rank("samples_per_s", "abc", means)
    assert [(each.side, each.rank, each.ties) for each in found.places] == [
        ("c", 1, ["b"]),
        ("b", 1, ["a", "c"]),
        ("a", 2, ["b"]),
    ]


def test_a_ranking_is_told_in_a_sentence():
    clear = {
        (0, 1): mean("a", "b", "slower", 0.8),
        (0, 2): mean("a", "c", "slower", 0.4),
        (1, 2): mean("b", "c", "same"),
    }
    said = "a is fastest: 25% faster than b, 2.5x as fast as c; b and c do not differ significantly"
    assert in_words(rank("samples_per_s", "abc", clear), SPEED) == said
    tied = {
        (0, 1): mean("a", "b", "undecided", 1.05),
        (0, 2): mean("a", "c", "better", 1.1),
        (1, 2): mean("b", "c", "same"),
    }
    said = "c and b share the first rank; c is 10% better than a; b and a do not differ significantly"
    assert in_words(rank("samples_per_J", "abc", tied), SCORE) == said
    assert in_words(rank("m", "ab", {(0, 1): None}), SCORE) == ""


def test_a_side_without_a_score_has_no_rank():
    means = {(0, 1): mean("a", "b", "better", 2.0), (0, 2): None, (1, 2): None}
    assert [(each.side, each.rank) for each in rank("m", "abc", means).places] == [("b", 1), ("a", 2), ("c", None)]
    nothing = rank("m", "abc", dict.fromkeys(means))
    assert ([each.rank for each in nothing.places], nothing.pairs) == ([None] * 3, [])


def test_verdicts_are_corrected_for_every_two_sides_in_every_metric(derive):
    sides = [offer(name, [step, step], scatter=0.05) for name, step in (("a", 1.0), ("b", 0.95), ("c", 0.9))]
    alone = [scored(derive, sides[one], sides[two]).scores[0] for one, two in ((0, 1), (0, 2), (1, 2))]
    plain = [each.metrics[0].mean.p_adjusted for each in alone]
    together = [each.p_adjusted for each in scored(derive, *sides).rankings[0].pairs]
    assert together == pytest.approx(holm(plain))
    both = scored(derive, *sides, metrics=["samples_per_s", "flop_per_s"])
    assert [each.p_adjusted for each in both.rankings[1].pairs] == pytest.approx(holm(plain + plain)[3:])


def test_a_metric_that_is_better_lower_has_the_same_places(derive):
    sides = offer("a", [1.0]), offer("b", [2.0]), offer("c", [0.5])
    found = scored(derive, *sides, metrics=["samples_per_s", "step_time_mean_s"])
    assert places(found, 0) == places(found, 1)
    ratios = [[mean.ratio for mean in ranking.pairs] for ranking in found.rankings]
    assert ratios[0] == pytest.approx(ratios[1])


def test_costs_are_named_by_side_if_there_are_several_contenders(derive):
    inputs = Inputs(price=31536, lifetime_years=1, utilisation=1, electricity_price_per_kWh=0, pue=1, power_W=1)
    dear = msgspec.structs.replace(inputs, price=2 * 31536)
    sides = offer("a", [1.0]), offer("b", [1.0]), offer("c", [0.7])
    costs = Costs("EUR", {"baseline": inputs, "b": dear, "c": dear})
    found = scored(derive, *sides, metrics=["samples_per_s", "samples_per_cost"], costs=costs)
    assert [each.cost_per_hour for each in found.costs] == pytest.approx([3.6, 7.2, 7.2])
    assert [each.places[0].side for each in found.rankings] == ["c", "a"]
    with pytest.raises(UserError, match=r"no costs for b; add \[side.b\]"):
        scored(
            derive, *sides, metrics=["samples_per_cost"], costs=Costs("EUR", {"baseline": inputs, "contender": dear})
        )


def test_a_case_that_only_contenders_share_has_costs_too(derive):
    inputs = Inputs(price=31536, lifetime_years=1, utilisation=1, electricity_price_per_kWh=0, pue=1, power_W=1)
    costs = Costs("EUR", dict.fromkeys("abc", inputs))
    sides = offer("a", [1.0]), offer("b", [0.5, 1.0]), offer("c", [0.25, 1.0])
    found = scored(derive, *sides, metrics=["samples_per_cost"], costs=costs)
    assert [(each.side, each.rank) for each in found.rankings[0].places] == [("c", 1), ("b", 2), ("a", 3)]
    assert [mean.cases for mean in found.rankings[0].pairs] == [1, 1, 2]


def test_contenders_that_share_no_case_are_not_told_apart(derive):
    whole = offer("a", [1.0, 1.0, 1.0])
    b = [record for record in offer("b", [0.5, 0.5, 1.0]) if record.case.seed < 2]
    c = [record for record in offer("c", [0.5, 0.5, 0.5]) if record.case.seed == 2]
    c = [
        *c,
        *(
            msgspec.structs.replace(r, case=msgspec.structs.replace(r.case, seed=7), trial_id=r.trial_id + "x")
            for r in c
        ),
    ]
    found = scored(derive, whole, b, c)
    assert places(found) == [("b", 1, ("c",)), ("c", 1, ("b",)), ("a", 3, ())]
    assert found.missing == {"cases without a counterpart": 4}
    with pytest.raises(UserError, match="b and c both contain the trial"):
        of_results([("a", whole, ()), ("b", b, ()), ("c", b, ())])


def test_all_values_of_an_axis_are_ranked(derive):
    records = [
        msgspec.structs.replace(each, case=msgspec.structs.replace(each.case, framework=name))
        for name, step in (("x", 1.0), ("y", 0.5), ("z", 4.0))
        for each in offer(name, [step, step])
    ]
    made = of_axis(records, [], "framework", "y", None)
    found = score(made, ["samples_per_s"], derive, weights=Weights(), costs=None, required=[], rules=Rules())
    assert places(found) == [("framework=y", 1, ()), ("framework=x", 2, ()), ("framework=z", 3, ())]


@pytest.fixture
def offers(tmp_path):
    """Results `a` to `d`: b twice as fast and mostly disturbed, c and d alike, d on half of its cores."""
    half = make_record().machine
    half = msgspec.structs.replace(half, cpu=msgspec.structs.replace(half.cpu, usable_cores=2, logical_cores=4))
    for records in (
        offer("a", [1.0, 2.0]),
        offer("b", [0.5, 1.0], interference=BUSY),
        offer("c", [0.8, 1.6], scatter=0.03),
        offer("d", [0.8, 1.6], scatter=0.03, machine=half),
    ):
        folder = tmp_path / records[0].run_id
        folder.mkdir()
        for record in records:
            (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    return tmp_path


def test_the_command_prints_ranks_ties_and_warnings(command, offers):
    (offers / "cost.toml").write_text(
        'currency = "EUR"\nlifetime_years = 1\nutilisation = 1\nelectricity_price_per_kWh = 0\npue = 1\npower_W = 1\n'
        "price = 31536\n[side.a]\n[side.b]\nprice = 63072\n[side.c]\n[side.d]\n"
    )
    done = command("suite", "score", "a", "b", "c", "d", "--cost=cost.toml")
    assert done.returncode == 0
    assert "B  b: 16 of 16 trials succeeded (100%), 16 disturbed\n" in done.stdout
    lines = done.stdout.splitlines()
    heading = next(index for index, line in enumerate(lines) if line.startswith("rank  side"))
    assert lines[heading].split() == ["rank", "side", "score", "verdict", "success", "EUR/h", "warnings"]
    table = [line.split() for line in lines[heading + 1 : heading + 5]]
    assert [row[:3] for row in table][::3] == [["1", "B", "b"], ["4", "A", "a"]]
    assert {tuple(row[:3]) for row in table[1:3]} == {("2", "C", "c"), ("2", "D", "d")}
    assert table[0][-4:] == ["faster", "100%", "7.2", "provisional"]
    assert table[3][3:] == ["1", "(baseline)", "-", "100%", "3.6", "-"]
    assert {row[-1] for row in table[1:3]} == {"-", "1"}
    assert all(len(line) <= 80 for line in lines[heading : heading + 9])
    assert re.search(r"^samples_per_s, \d of \d cases.*: b is fastest: \S+ faster than [cd]", done.stdout, re.M)
    assert re.search(r"; [cd] and [cd] do\s+not\s+differ\s+significantly", done.stdout)
    assert re.search(r"^  D/C \d\S+ \[.*undecided$", done.stdout, re.M)
    assert re.search(r"^case +weight +A +B/A +C/A +D/A\nseed=0 +1 +2\S* +2\.\d+ +1\.\d+", done.stdout, re.M)
    assert "  warning (D): measured on 2 of 4 cores" in done.stdout
    assert (
        done.stdout.count("  warning (B/A, C/B, D/B): the verdict is provisional: 16 of 16 trials of b were dist") == 1
    )
    assert re.search(r"^samples_per_cost, .*\n(  .*\n)*rank  side", done.stdout, re.M)
    told = command("suite", "score", "a", "b", "c", "d", "--cost=cost.toml", "--verbose").stdout
    assert "verdicts are corrected for 12 comparisons (Holm), intervals are not" in told
    assert command("suite", "score", "a", "b", "c", "--strict").returncode == 3
    assert command("suite", "score", "a", "c", "d", "--strict").returncode == 0
    assert command("suite", "score", "a", "b", "c", "--contender=c", "--strict").returncode == 0


def test_the_json_holds_ranks_pairs_and_scores(command, offers):
    found = json.loads(command("suite", "score", "a", "b", "c", "d", "--json").stdout)
    assert {each["side"]: each["rank"] for each in found["rankings"][0]["places"]} == {"a": 4, "b": 1, "c": 2, "d": 2}
    assert len(found["rankings"][0]["pairs"]) == 6
    assert [each["contender"]["name"] for each in found["scores"]] == ["b", "c", "d"]
    assert found["sides"][1]["warnings"]["disturbed"].startswith("16 of 16 trials were disturbed")
    assert found["sides"][3]["warnings"] == {"cores": "measured on 2 of 4 cores"}
    assert found["rankings"][0]["pairs"][0]["provisional"] == "16 of 16 trials of b were disturbed"


def test_one_number_for_one_fact(command, offers):
    """The score of two sides is the one that they have among several, on the terminal and as JSON."""
    alone = json.loads(command("suite", "score", "a", "c", "--json").stdout)["scores"][0]["metrics"][0]
    among = json.loads(command("suite", "score", "a", "b", "c", "--json").stdout)
    metric, place = (
        among["scores"][1]["metrics"][0],
        next(each for each in among["rankings"][0]["places"] if each["side"] == "c"),
    )
    assert alone["by_case"] == metric["by_case"]
    assert place["mean"] == metric["mean"]
    for name in ("ratio", "low", "high"):
        assert alone["mean"][name] == metric["mean"][name] > 1
    text = f"{metric['mean']['ratio']:.3f} [{metric['mean']['low']:.3f}, {metric['mean']['high']:.3f}]"
    assert text in command("suite", "score", "a", "c").stdout
    assert text in command("suite", "score", "a", "b", "c").stdout
