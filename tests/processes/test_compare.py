"""Comparisons of records made by hand."""

import csv
import itertools
import json
import math
import re

import msgspec
import numpy as np
import pytest
from scipy import stats
from support.records import make_record

from benchmarker import Allocation
from benchmarker.comparing import matching
from benchmarker.comparing.formatting import details
from benchmarker.comparing.judge import classical, compare
from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.hooks.metrics import load_metrics

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def run(a, b, *, name="run", **design):
    """A run of two cases: `a` and `b` are the step times of their trials, one number or a list of blocks each."""
    return [
        make_record(value, run=name, trial=trial, case={"seed": number}, design={"case_number": number, **design})
        for number, values in enumerate((a, b))
        for trial, value in enumerate(values)
    ]


def verdict(records, derive, **rules):
    (comparison,) = compare(matching.within(records).matches, Rules(**rules), derive).comparisons
    return comparison


def noisy(n, ratio=1.0, sd=0.1, own=0.01):
    """Step times of two cases that share what happens to a round."""
    shared = np.exp(RNG.normal(0, sd, n))
    return shared * np.exp(RNG.normal(0, own, n)), ratio * shared * np.exp(RNG.normal(0, own, n))


@pytest.mark.parametrize("change", ["host", "allocation"])
def test_a_round_that_was_cut_is_not_paired(derive, change):
    """Of the second side, the rounds from the eighth on were measured elsewhere; those before are paired as ever."""
    a, b = noisy(12, 1.05)
    there = {
        "host": {"machine": msgspec.structs.replace(make_record().machine, host="elsewhere")},
        "allocation": {"allocation": Allocation("slurm", "7", ["node1"], 1)},
    }[change]
    records = [
        msgspec.structs.replace(each, **there) if each.design.case_number and each.trial >= 8 else each
        for each in run(a, b)
    ]
    found, whole = verdict(records, derive), verdict(run(a[:8], b[:8]), derive)
    assert (found.method, found.rounds, found.ratio) == ("paired", 8, whole.ratio)
    assert "4 rounds were cut: each side was measured elsewhere" in found.notes
    moved = [msgspec.structs.replace(each, **there) if each.design.case_number else each for each in run(a, b)]
    assert verdict(moved, derive).method == "unpaired"


def test_a_run_that_moved_between_rounds_is_paired(derive):
    a, b = noisy(12, 1.05)
    records = [
        msgspec.structs.replace(each, allocation=Allocation("slurm", "7", ["node1"], each.trial // 6))
        for each in run(a, b)
    ]
    assert verdict(records, derive).rounds == 12


def test_paired_by_round_is_scipys_signed_rank_test(derive):
    a, b = noisy(12, 1.05)
    found = verdict(run(a, b), derive)
    logs = np.log(np.round(b * 1e9) / np.round(a * 1e9))
    assert found.method == "paired"
    assert found.rounds == 12
    assert found.p_value == pytest.approx(stats.wilcoxon(logs, method="exact").pvalue)
    walsh = [(x + y) / 2 for x, y in itertools.combinations_with_replacement(logs, 2)]
    assert found.ratio == pytest.approx(math.exp(np.median(walsh)))
    assert found.low < found.ratio < found.high
    assert found.verdict == "slower"
    assert found.probability_lower == np.mean(logs < 0)
    assert found.baseline_value == pytest.approx(np.median(a), rel=1e-6)
    assert found.process_deviation == pytest.approx(
        math.sqrt((np.log(a).var(ddof=1) + np.log(b).var(ddof=1)) / 2), rel=1e-4
    )


def test_unpaired_runs_are_scipys_mann_whitney_test_and_say_what_they_assume(derive):
    a, b = np.exp(RNG.normal(0, 0.02, 9)), 1.2 * np.exp(RNG.normal(0, 0.02, 7))
    one, two = run(a, [], name="r1"), run(b, [], name="r2")
    made = matching.between([("one", one), ("two", two)])
    (found,) = compare(made.matches, Rules(), derive).comparisons
    assert found.method == "unpaired"
    assert found.trials == (9, 7)
    assert found.p_value == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)
    assert found.ratio == pytest.approx(math.exp(np.median(np.log(b)[:, None] - np.log(a)[None, :])), rel=1e-6)
    assert found.verdict == "slower"


def test_unpaired_trials_that_drift_are_told(derive):
    a = np.linspace(1.0, 1.2, 8)
    made = matching.between([("one", run(a, [], name="r1")), ("two", run(a[[3, 0, 6, 1, 7, 2, 5, 4]], [], name="r2"))])
    (found,) = compare(made.matches, Rules(), derive).comparisons
    (note,) = (note for note in found.notes if "drifts" in note)
    assert note.startswith("one drifts from trial to trial (+1")


def test_what_drifts_hits_both_sides_and_not_the_verdict(derive):
    a, b = noisy(10, 1.03, own=0.003)
    drift = np.exp(np.linspace(0, 1, 10))
    found = verdict(run(a * drift, b * drift), derive)
    assert found.verdict == "slower"
    assert 1.02 < found.low < found.high < 1.04


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, "same"), (1.1, "slower"), (0.9, "faster")])
def test_verdicts(derive, ratio, expected):
    a, b = noisy(12, ratio, own=0.004)
    assert verdict(run(a, b), derive).verdict == expected


def test_undecided_says_how_many_rounds_would_decide(derive):
    a, b = noisy(10, 1.0, own=0.1)
    found = verdict(run(a, b), derive)
    assert found.verdict == "undecided"
    assert found.enough is None or found.enough > 10


def test_an_effect_of_the_slot_is_told(derive):
    ratios = np.where(np.arange(12) % 2, 1.1, 1.0) * np.exp(RNG.normal(0, 0.001, 12))
    records = [
        make_record(
            ratios[trial] if number else 1.0,
            trial=trial,
            case={"seed": number},
            design={"case_number": number, "slot": (number + trial + 1) % 2},
        )
        for trial in range(12)
        for number in range(2)
    ]
    assert "the ratio depends on which of the two ran first in its round" in verdict(records, derive).notes


def test_three_rounds_cannot_decide_and_the_tool_knows(derive):
    found = verdict(run([1.0, 1.0, 1.0], [2.0, 2.1, 2.2]), derive)
    assert found.verdict == "undecided"
    assert "3 rounds cannot reach p < 0.05 whatever their values; at least 6 are needed" in found.notes
    assert found.low is None
    made = matching.between([("x", run([1.0, 1.1, 1.2], [], name="x")), ("y", run([2.0, 2.1, 2.2], [], name="y"))])
    (found,) = compare(made.matches, Rules(), derive).comparisons
    assert found.p_value == pytest.approx(0.1)
    assert "3 and 3 trials cannot reach p < 0.05 whatever their values; at least 4 per side are needed" in found.notes


def test_one_process_a_side_gives_no_verdict_unless_asked(derive):
    records = run([list(np.exp(RNG.normal(0, 0.01, 100)))], [list(1.1 * np.exp(RNG.normal(0, 0.01, 100)))])
    found = verdict(records, derive)
    assert (found.method, found.verdict, found.p_value) == ("none", "undecided", None)
    assert found.ratio == pytest.approx(1.1, rel=0.01)
    asked = verdict(records, derive, blocks_as_trials=True)
    assert asked.verdict == "slower"
    assert asked.method == "blocks of one process as if independent"


def test_of_single_processes_the_distribution_is_shown(cli, tmp_path):
    for record in run([list(np.exp(RNG.normal(0, 0.01, 30)))], [list(np.exp(RNG.normal(0, 0.01, 30)))]):
        atomic.write(tmp_path / f"{record.trial_id}.json", atomic.encode(record))
    shown = cli("compare", ".").stdout
    assert shown.startswith("undecided: too few trials for a test; in these, seed=1 takes 0.")
    assert "a side has fewer than two processes, so the variation between processes is unknown" in shown
    assert "Step times of all timed blocks" in shown
    assert "rank-sum statistic" not in shown
    assert "rank-sum statistic" in cli("compare", ".", "--classical").stdout
    asked = cli("compare", ".", "--unit=block").stdout
    assert "calls equal configurations different in half of all cases or more" in asked


def test_duplicated_iterations_do_not_narrow_the_interval(derive):
    pairs = [[list(np.exp(RNG.normal(0, 0.05, 9))) for _ in range(10)] for _ in range(2)]
    once = verdict(run(*pairs), derive)
    twice = verdict(run(*[[times * 5 for times in side] for side in pairs]), derive)
    assert (once.low, once.high, once.p_value) == (twice.low, twice.high, twice.p_value)


def test_order_within_a_trial_and_the_unit_change_nothing_and_swapping_inverts(derive):
    a, b = ([list(np.exp(RNG.normal(0, 0.05, 9))) for _ in range(10)] for _ in range(2))
    plain = verdict(run(a, b), derive)
    shuffled = verdict(run([RNG.permutation(x).tolist() for x in a], [sorted(x) for x in b]), derive)
    assert (plain.ratio, plain.low, plain.high) == (shuffled.ratio, shuffled.low, shuffled.high)
    scaled = verdict(run([[1000 * y for y in x] for x in a], [[1000 * y for y in x] for x in b]), derive)
    assert (scaled.ratio, scaled.low) == pytest.approx((plain.ratio, plain.low), rel=1e-6)
    swapped = verdict(run(b, a), derive)
    assert (1 / swapped.ratio, 1 / swapped.high, 1 / swapped.low) == pytest.approx((plain.ratio, plain.low, plain.high))
    assert swapped.p_value == plain.p_value


def test_one_look_has_all_of_alpha(derive):
    a, b = noisy(10, 1.05)
    assert verdict(run(a, b, looks=[10]), derive) == verdict(run(a, b), derive)


def test_rounds_that_both_have_are_paired_though_one_side_has_more(derive):
    a, b = noisy(10, 1.1, own=0.002)
    made = matching.by([*run(a, b), *run(a[:3] * 9, [], name="later")], "seed", "0")
    (found,) = compare(made.matches, Rules(), derive).comparisons
    assert (found.method, found.rounds, found.trials) == ("paired", 10, (13, 10))
    assert "seed=0: 3 trials left out: the other side has none in the same rounds" in found.notes


def test_two_runs_of_the_same_with_itself_are_compared_with_all_trials(derive):
    places = []
    for name in "xy":
        records = run([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], name=name)
        places.append((name, [msgspec.structs.replace(r, case=records[0].case) for r in records]))
    (found,) = compare(matching.between(places).matches, Rules(), derive).comparisons
    assert (found.method, found.trials) == ("unpaired", (6, 6))
    assert sorted(found.baseline_trials.values()) == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])


def test_a_duet_is_compared_pair_by_pair(derive):
    records = []
    for trial in range(8):
        level = np.repeat(np.exp(RNG.normal(0, 0.5, 5)), 10)  # within a process the level jumps, for both alike
        for number, ratio in enumerate((1.0, 1.04)):
            design = {"kind": "duet", "case_number": number, "partner": f"run-{trial:04}-{1 - number}"}
            times = list(level * ratio * np.exp(RNG.normal(0, 0.002, 50)))
            records.append(make_record(times, trial=trial, case={"seed": number}, design=design))
    found = verdict(records, derive)
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.04, abs=0.002)
    assert found.high / found.low < 1.005


def test_a_run_that_could_stop_early_is_judged_by_wider_intervals(derive):
    a, b = noisy(10, 1.05)
    plain, looked = verdict(run(a, b), derive), verdict(run(a, b, looks=[8, 11, 15, 20, 30]), derive)
    assert looked.level == pytest.approx(0.99)
    assert looked.low < plain.low
    assert looked.p_value == plain.p_value
    assert looked.p_adjusted == pytest.approx(min(1, 5 * plain.p_value))
    assert (plain.looks, looked.looks) == ([], [8, 11, 15, 20, 30])
    assert "could stop at 5 looks, so each uses 0.01 of alpha" in details(looked)


def test_many_comparisons_are_corrected(derive):
    records = []
    for number in range(9):
        values = np.exp(RNG.normal(0.02 * (number == 1), 0.01, 10))
        records += [
            make_record(value, trial=trial, case={"seed": number}, design={"case_number": number})
            for trial, value in enumerate(values)
        ]
    family = compare(matching.by(records, "seed", "0").matches, Rules(), derive)
    raw = [each.p_value for each in family.comparisons]
    expected = [min(1.0, (8 - rank) * p) for rank, p in enumerate(sorted(raw))]
    assert sorted(each.p_adjusted for each in family.comparisons) == pytest.approx(np.maximum.accumulate(expected))


def test_failed_trials_are_left_out_and_told(derive):
    a, b = noisy(8, 1.1)
    records = run(a, b)
    failure = {"kind": "out_of_memory", "message": "too much", "stage": "timed"}
    records[3] = msgspec.convert(
        {**msgspec.to_builtins(records[3]), "status": "failed", "error": failure}, type(records[3])
    )
    found = verdict(records, derive)
    assert (found.rounds, found.trials) == (7, (7, 8))
    assert "seed=0: 1 of 8 trials failed (too much)" in found.notes


def test_the_word_goes_by_the_metric(derive):
    a, b = noisy(10, 1.1, own=0.001)
    assert verdict(run(a, b), derive, metric="samples_per_s").verdict == "slower"
    assert verdict(run(a, b), derive, metric="samples_per_s").ratio == pytest.approx(1 / 1.1, rel=0.01)
    records = run(a, b)
    heavier = msgspec.structs.replace(records[0].memory, host_peak_rss_bytes=2**21)
    records[10:] = [msgspec.structs.replace(record, memory=heavier) for record in records[10:]]
    assert verdict(records, derive, metric="host_peak_rss_bytes").verdict == "worse"
    assert verdict(records, derive, metric="device_peak_bytes").verdict == "undecided"
    assert verdict(run(a, a), derive).verdict == "same"


def test_the_geometric_mean_over_cases_pairs_whole_rounds(derive):
    records = []
    for case, ratio in enumerate((0.5, 0.8)):
        a, b = noisy(10, ratio, own=0.002)
        for number, values in enumerate((a, b)):
            records += [
                make_record(
                    value,
                    trial=trial,
                    case={"framework": "xy"[number], "seed": case},
                    design={"case_number": 2 * case + number},
                )
                for trial, value in enumerate(values)
            ]
    family = compare(matching.by(records, "framework", "x").matches, Rules(), derive)
    (mean,) = family.geometric_means
    assert mean.cases == 2
    assert mean.ratio == pytest.approx(math.sqrt(math.prod(each.ratio for each in family.comparisons)))
    assert mean.ratio == pytest.approx(math.sqrt(0.4), rel=0.005)
    assert mean.low < math.sqrt(0.4) * 1.005
    assert mean.verdict == "faster"


def test_the_geometric_mean_of_unpaired_cases_is_welchs_interval(derive):
    places = []
    logs = {}
    for name, shift in (("x", 0.0), ("y", 0.3)):
        records = []
        for case in range(2):
            logs[name, case] = RNG.normal(shift, 0.05 * (1 + case), 6)
            records += [
                make_record(value, run=name, trial=trial, case={"seed": case}, design={"case_number": case})
                for trial, value in enumerate(np.exp(logs[name, case]))
            ]
        places.append((name, records))
    family = compare(matching.between(places).matches, Rules(), derive)
    (mean,) = family.geometric_means
    parts = [values.var(ddof=1) / 6 for values in logs.values()]
    value = np.mean([np.log(each.ratio) for each in family.comparisons])
    freedom = sum(parts) ** 2 / sum(part**2 / 5 for part in parts)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts)) / 2
    assert (mean.ratio, mean.low, mean.high) == pytest.approx(
        tuple(np.exp([value, value - half, value + half])), rel=1e-6
    )


def test_geometric_means_made_together_are_corrected_and_go_by_their_own_test(derive):
    records = []
    for trial in range(10):
        for number, (name, case) in enumerate((name, case) for name in "xyz" for case in range(2)):
            value = 1.0 + 0.03 * (name == "y") * (1 + trial / 100) + 0.001 * ((trial * 7 + number * 3) % 5)
            records.append(
                make_record(value, trial=trial, case={"framework": name, "seed": case}, design={"case_number": number})
            )
    y, z = compare(matching.by(records, "framework", "x").matches, Rules(), derive).geometric_means
    assert (y.verdict, z.verdict) == ("slower", "same")
    assert y.p_adjusted == pytest.approx(2 * 2 * 2**-10)  # all ten rounds agree; two means


def test_too_many_values_are_refused_in_one_line(cli, tmp_path):
    for record in run([[1.0] * 5000], [[1.1] * 5000]):
        atomic.write(tmp_path / f"{record.trial_id}.json", atomic.encode(record))
    done = cli("compare", ".", "--unit=block")
    assert done.returncode == 2
    assert "5000 against 5000 values are too many to compare pair by pair; name fewer records" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_classical_numbers_are_scipys(derive):
    a, b = (np.exp(RNG.normal(shift, 0.1, 50)).round(9) for shift in (0.1, 0.0))
    (match,) = matching.within(run([list(a)], [list(b)])).matches
    found = classical(match)
    assert found.rank_sum.statistic == pytest.approx(stats.ranksums(a, b).statistic)
    assert found.rank_sum.statistic > 0
    assert found.baseline_blocks.mean == pytest.approx(a.mean())
    assert found.baseline_blocks.deviation == pytest.approx(a.std(ddof=1))


@pytest.fixture
def stored(tmp_path):
    """A run folder with records of two cases, the second 10% slower."""
    a, b = noisy(10, 1.1)
    folder = tmp_path / "results/run"
    folder.mkdir(parents=True)
    for record in run(a, b):
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder


def test_the_command_and_its_exit_status(cli, stored):
    done = cli("compare", str(stored))
    assert done.returncode == 0, done.stderr
    assert re.match(r"seed=1 takes \d+(\.\d)?% longer than seed=0 \(", done.stdout)
    assert "; B/A 1." in done.stdout
    assert "paired by round: exact signed-rank test" not in done.stdout
    detailed = cli("compare", str(stored), "--verbose").stdout
    assert " SLOWER; 10 rounds x " in detailed
    assert "paired by round: exact signed-rank test" in detailed
    assert cli("compare", str(stored), "--fail-on=slower,undecided").returncode == 1
    assert cli("compare", str(stored), "--fail-on=faster").returncode == 0
    plain = json.loads(cli("compare", str(stored), "--json", "--classical", "--by=seed", "--baseline=1").stdout)
    assert plain["family"]["comparisons"][0]["verdict"] == "faster"
    assert plain["classical"][0]["baseline_blocks"]["n"] == 10
    assert "speed-up over seed=0 by step time (median)" in cli("compare", str(stored), "--speedup", "--by=seed").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--fail-on=slow"], "--fail-on=slow: the verdicts are faster, slower"),
        (["--metric=speed"], "no metric is named 'speed'; there are: "),
        (["--metric=compile_s", "--statistic=p10"], "--statistic applies only to the step time"),
        (["--unit=block", "--metric=samples_per_s"], "--unit=block compares the step times of timed blocks"),
        (["--fail-on="], "--fail-on names no verdict; there are: faster, slower"),
        (["--baseline=0"], "--baseline is a value of the axis that --by names"),
        (["--delta=2"], "--delta=2: not a share between 0 and 1: write 2% or 0.02"),
        (["nowhere"], "no record was read from nowhere"),
        (["-o", "x.doc"], "cannot draw x.doc: the supported formats are .png, .svg, .pdf"),
        (["-o", "none/x.svg"], "cannot write none/x.svg: No such file or directory"),
    ],
)
def test_mistakes_are_told_in_one_line(cli, stored, args, message):
    done = cli("compare", str(stored), *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_record_is_named_and_makes_the_status_1(cli, stored):
    (stored / "cut.json").write_text("{")
    done = cli("compare", str(stored))
    assert done.returncode == 1
    assert "cut.json" in done.stderr
    assert "% longer than seed=0" in done.stdout


def test_the_ratios_are_drawn_with_their_data_and_caption(cli, stored, tmp_path):
    done = cli("compare", str(stored), "-o", "ratios.png")
    assert done.returncode == 0
    told, caption = done.stderr.splitlines()
    assert told == "figure: ratios.png, its data: ratios.csv"
    assert caption.startswith("Ratio of the step time (median), seed=1 over seed=0. Each mark is a ratio")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
    (row,) = csv.DictReader((tmp_path / "ratios.csv").read_text().splitlines())
    ratio = json.loads(cli("compare", str(stored), "--json").stdout)["family"]["comparisons"][0]["ratio"]
    assert float(row["B/A"]) == ratio
