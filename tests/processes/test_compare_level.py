"""Comparisons of scopes and kernels, of records with profiles made by hand."""

import json
import re
import statistics

import msgspec
import numpy as np
import pytest
from scipy import stats
from support.records import make_record

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching, profiled_parts
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import DELTAS, PROFILED, Rules
from benchmarker.files import atomic
from benchmarker.records.profile import Kernel, Scope, Trace

BUSY_NS = 1_000_000
UNEVEN = (0.99, 1.003, 0.996, 1.01, 1.0, 1.007, 0.993, 1.002, 0.998, 1.005)
"""What ten processes differ by."""


def scope(name, step_ns, phase="forward", **changed):
    root_ns = sum(step_ns)
    whole = Scope(name, phase, 2, 2, 2, root_ns, root_ns, root_ns, 1.0, list(step_ns))
    return msgspec.structs.replace(whole, **changed)


def kernel(name, median_ns, count=2, of="mlp", phase="forward", op="op"):
    total = round(median_ns * count)
    return Kernel(
        name=name,
        op=op,
        category="gemm",
        rule="rule",
        scope=of,
        phase=phase,
        count=count,
        total_ns=total,
        self_ns=total,
        busy_ns=total,
        mean_ns=median_ns,
        median_ns=median_ns,
        p5_ns=median_ns,
        p95_ns=median_ns,
        min_ns=round(median_ns),
        max_ns=round(median_ns),
        std_ns=0.0,
        flops=None,
        bytes=None,
    )


def trace(**changed):
    counts = dict.fromkeys(Trace.__struct_fields__, 0)
    whole = {
        **counts,
        "format": "xplane",
        "framework": "toy",
        "separable": False,
        "variables": {},
        "steps": 2,
        "step_ns": [BUSY_NS // 2] * 2,
        "wall_ns": BUSY_NS,
        "busy_ns": BUSY_NS,
        "devices": [],
        "missing": [],
        "critical_ranks": [],
        "device_names": [],
        "exchanges": [],
        "notes": [],
        "complete": True,
    }
    return Trace(**whole | changed)


def sides(one, two, run="run", case=None):
    """Trials of two cases in turns: each side is a list of what changes in a record."""
    return [
        make_record(
            run=run, trial=trial, case={"framework": name, **(case or {})}, design={"case_number": number}, **fields
        )
        for number, (name, trials) in enumerate((("x", one), ("y", two)))
        for trial, fields in enumerate(trials)
    ]


def of_scopes(*each, **of_trace):
    return {"trace": trace(**of_trace), "scopes": list(each)}


def of_kernels(*each, **of_trace):
    return {"trace": trace(**of_trace), "kernels": list(each)}


def times(level):
    """A part's time in each of ten processes: about a fifth of the busy time of two steps."""
    return [round(100_000 * level * each) for each in UNEVEN]


def ten(ratio):
    """Ten trials of each side: one scope whose time is `ratio` times as long, and one that is the same."""
    return [
        [
            of_scopes(scope("mlp", [mlp] * 2), scope("attn", [attn] * 2))
            for mlp, attn in zip(times(level), times(0.5), strict=True)
        ]
        for level in (1.0, ratio)
    ]


def family(records, level="scope", **rules):
    made = profiled_parts.split(matching.by(records, "framework", "x"), level)
    rules = Rules(metric=PROFILED[level], delta=DELTAS[level], level=level, **rules)
    return compare(made.matches, rules, profiled_parts.part_metrics(level), made.unmatched, made.notes)


def test_each_scope_is_compared_by_its_median_time_a_step_and_all_are_one_family():
    found = family(sides(*ten(1.2)))
    mlp, attn = found.comparisons
    assert [each.case for each in found.comparisons] == [
        {"scope": "mlp", "phase": "forward"},
        {"scope": "attn", "phase": "forward"},
    ]
    logs = np.log(np.array(times(1.2)) / times(1.0))
    p = stats.wilcoxon(logs, method="exact").pvalue
    assert (mlp.method, mlp.rounds, mlp.verdict) == ("paired", 10, "slower")
    assert mlp.ratio == pytest.approx(1.2, rel=1e-4)
    assert mlp.p_value == pytest.approx(p)
    assert mlp.p_adjusted == pytest.approx(2 * p)
    assert (attn.verdict, attn.ratio) == ("same", 1.0)
    assert mlp.baseline_value == pytest.approx(statistics.median(times(1.0)) / 1e9)
    assert (mlp.metric, mlp.unit, mlp.delta, mlp.timed_blocks) == ("scope_time_median_s", "s", 0.05, None)
    assert found.geometric_means == []


def test_the_value_of_a_trial_is_the_median_over_steps_and_phases_are_kept_apart():
    steps = [100_000, 110_000, 900_000]
    both = [of_scopes(scope("mlp", steps), scope("mlp", [10_000] * 3, "backward"), busy_ns=2_000_000)] * 2
    forward, backward = family(sides(both, both)).comparisons
    assert forward.baseline_trials == {"run-0000-0": pytest.approx(110e-6), "run-0001-0": pytest.approx(110e-6)}
    assert backward.case == {"scope": "mlp", "phase": "backward"}
    assert backward.contender_value == pytest.approx(10e-6)


def test_cases_and_scopes_are_one_family():
    records = [record for number in range(3) for record in sides(*ten(1.2), run=f"run{number}", case={"seed": number})]
    found = family(records)
    assert len(found.comparisons) == 6
    assert found.comparisons[0].case == {"seed": 0, "scope": "mlp", "phase": "forward"}
    assert found.comparisons[0].p_adjusted == pytest.approx(6 * found.comparisons[0].p_value)
    assert found.geometric_means == []


def test_what_is_left_out_is_counted_for_each_case():
    records = []
    for number in range(2):
        trials = [of_scopes(scope("mlp", [490_000] * 2), *[scope(f"s{n}", [4_000] * 2) for n in range(number + 1)])] * 2
        records += sides(trials, trials, run=f"run{number}", case={"seed": number})
    share = "less than 1% of the busy time on both sides"
    assert family(records).notes[1:] == [
        f"left out of seed=0 for taking {share}: 1 scope (2.0% in framework=x, 2.0% in framework=y)",
        f"left out of seed=1 for taking {share}: 2 scopes (2.0% in framework=x, 2.0% in framework=y)",
    ]


def test_what_takes_less_than_one_percent_on_both_sides_is_left_out_and_counted():
    one = [of_scopes(scope("mlp", [480_000] * 2), scope("a", [4_900] * 2), scope("b", [3_000] * 2))] * 2
    two = [of_scopes(scope("mlp", [480_000] * 2), scope("a", [5_000] * 2), scope("b", [4_000] * 2))] * 2
    found = family(sides(one, two))
    assert [each.case["scope"] for each in found.comparisons] == ["mlp", "a"]
    assert (
        "left out for taking less than 1% of the busy time on both sides: "
        "1 scope (3.0% in framework=x, 3.0% in framework=y)" in found.notes
    )
    assert "under the profiler" in found.notes[0]


def test_what_one_side_lacks_is_named_with_its_share_and_where_it_went():
    both = scope("mlp", [300_000] * 2)
    fused = scope("gelu", [0, 0], any_ns=50_000)
    one = [of_scopes(both, scope("gelu", [50_000] * 2), scope("", [20_000] * 2, ""))] * 2
    two = [of_scopes(both, fused, scope("ln", [100_000] * 2))] * 2
    found = family(sides(one, two))
    assert [each.case["scope"] for each in found.comparisons] == ["mlp"]
    assert found.unmatched == [
        "framework=y: scope=ln phase=forward (20.0% of its busy time); in framework=x it does not occur",
        "framework=x: scope=gelu phase=forward (10.0% of its busy time); in framework=y it is fused with other scopes",
        "framework=x: scope=(outside any) phase=- (4.0% of its busy time); in framework=y it does not occur",
    ]


def test_kernels_are_compared_by_name_scope_and_phase():
    one = [of_kernels(kernel("k", value), kernel("k", 50_000, of="attn")) for value in times(1.0)]
    two = [of_kernels(kernel("k", value), kernel("other", 50_000, of="attn")) for value in times(0.8)]
    found = family(sides(one, two), "kernel")
    (k,) = found.comparisons
    assert k.case == {"kernel": "k", "scope": "mlp", "phase": "forward"}
    assert (k.verdict, k.metric) == ("faster", "kernel_time_median_s")
    assert k.ratio == pytest.approx(0.8, rel=1e-4)
    assert found.unmatched == [
        "framework=x: kernel=k scope=attn phase=forward (10.0% of its busy time); in framework=y it is not listed",
        "framework=y: kernel=other scope=attn phase=forward (10.0% of its busy time); in framework=x it is not listed",
    ]
    assert "0 kernels and those not listed in records (70.0% in framework=x, 74.0% in framework=y)" in found.notes[1]


def test_instructions_that_run_kernels_of_one_name_are_weighed_by_their_runs():
    lines = [kernel("k", 10_000, count=3, op="dot.1"), kernel("k", 30_000, count=1, op="dot.2")]
    (found,) = family(sides([of_kernels(*lines)] * 2, [of_kernels(kernel("k", 15_000))] * 2), "kernel").comparisons
    assert found.baseline_value == pytest.approx(15e-6)
    assert "it is executed 2 and 1 times per step; the time of one execution is compared" in found.notes


@pytest.mark.parametrize(
    ("one", "two", "note"),
    [
        (
            of_scopes(scope("mlp", [9_000] * 2), complete=False, missing=["scope ln ran 1 times"]),
            of_scopes(scope("mlp", [9_000] * 2)),
            "framework=x: 2 of 2 profiles are incomplete, for instance: scope ln ran 1 times",
        ),
        (
            of_scopes(scope("mlp", [9_000] * 2)),
            of_scopes(scope("mlp", [9_000] * 2), separable=True),
            "only some trials were profiled with --separable, which changes what is fused: 0 of 2 and 2 of 2 trials",
        ),
        (
            of_scopes(scope("mlp", [9_000] * 2), scope("ln", [5] * 2, purity=0.1)),
            of_scopes(scope("mlp", [9_000] * 2, purity=0.85)),
            "framework=y: fused with other scopes, purity 85%: its time by root includes time of theirs",
        ),
        (
            of_scopes(scope("mlp", [9_000] * 2, any_ns=36_000)),
            of_scopes(scope("mlp", [9_000] * 2, any_ns=18_500)),
            "framework=x: fused with other scopes: 50% of the time that contains its work is attributed to them",
        ),
    ],
)
def test_profiles_that_are_not_alike_are_told(one, two, note):
    (found,) = family(sides([one] * 2, [two] * 2)).comparisons
    assert [each for each in found.notes if "cannot reach" not in each] == [note]


def test_notes_on_the_timed_part_are_left_out_and_work_that_differs_is_told():
    heavier = msgspec.structs.replace(make_record().cost, flops=2000)
    disturbed = msgspec.structs.replace(make_record().interference, steal_percent=50.0)
    one, two = ten(1.2)
    two = [{**fields, "cost": heavier, "interference": disturbed} for fields in two]
    found = family(sides(one, two)).comparisons[0]
    assert found.notes == ["the work per step differs: 1000 and 2000 FLOP"]


def test_trials_without_a_profile_or_the_part_are_left_out_and_told():
    one, two = ten(1.2)
    one[0] = {}
    two[1] = of_scopes(scope("attn", [50_000] * 2))
    mlp, attn = family(sides(one, two)).comparisons
    assert (mlp.rounds, mlp.trials) == (8, (9, 9))
    no_profile = "framework=x: 1 of 10 trials has no scope_time_median_s: it was not profiled; use --profile"
    assert no_profile in mlp.notes
    assert no_profile in attn.notes
    assert "framework=y: 1 of 10 trials has no scope_time_median_s: it is not in its profile" in mlp.notes


def test_a_case_without_profiles_is_named_and_the_others_are_compared():
    records = [*sides(*ten(1.2)), *sides([{}] * 2, ten(1.2)[1][:2], run="r", case={"seed": 1})]
    found = family(records)
    assert len(found.comparisons) == 2
    reason = "it was not profiled; use --profile"
    assert found.unmatched == [f"seed=1 framework=x: no trial has a profile ({reason})"]


def test_without_profiles_or_common_names_the_remedy_is_named():
    with pytest.raises(UserError, match=r"no trial of framework=y has a profile .* run with --profile"):
        family(sides(ten(1.0)[0], [{}] * 10))
    one, two = ([of_kernels(kernel(name, 50_000))] * 2 for name in ("gemm", "aten::mm"))
    with pytest.raises(
        UserError, match="no kernel has a counterpart on the other side; compare scopes with --level=scope"
    ):
        family(sides(one, two), "kernel")


@pytest.fixture
def stored(tmp_path):
    """A run folder whose second case has a scope that takes 20% longer, and kernels with a long name."""
    folder = tmp_path / "results/run"
    folder.mkdir(parents=True)
    long = "k" * 100
    one, two = ten(1.2)
    for side in (one, two):
        for number, fields in enumerate(side):
            fields["kernels"] = [kernel(long, 50_000 + number), kernel("short", 20_000 + number)]
    for record in sides(one, two):
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder


def test_the_command_shows_scopes_and_kernels(cli, stored):
    done = cli("compare", str(stored), "--level=scope", "--fail-on=slower")
    assert done.returncode == 1, done.stderr
    tally, heading, columns, mlp, attn, *_ = done.stdout.splitlines()
    assert tally == "2 comparisons: 1 slower, 1 same"
    assert heading == "scope time median, medians over trials; 10 rounds; nap ms=1.0 fp32 on cpu, eager"
    assert re.split("  +", columns) == ["scope", "phase", "x", "y", "verdict on y", "B/A"]
    assert re.split("  +", mlp)[:2] == ["mlp", "forward"]
    assert re.split("  +", mlp)[4] == "takes 20.00% longer (±0.00%)"
    assert re.split("  +", attn)[4] == "same within 5%"
    verbose = cli("compare", str(stored), "--level=scope", "--verbose").stdout
    assert "p adjusted for 2 comparisons (Holm); δ 5%" in verbose
    assert "note: times were measured under the profiler" in done.stdout
    assert "Step times of all timed blocks" not in done.stdout
    assert cli("compare", str(stored), "--level=scope", "--delta=30%", "--fail-on=slower").returncode == 0
    kernels = cli("compare", str(stored), "--level=kernel")
    assert f"{'k' * 28}…{'k' * 27}  mlp" in kernels.stdout
    plain = json.loads(cli("compare", str(stored), "--level=kernel", "--json").stdout)["family"]
    assert plain["comparisons"][0]["case"]["kernel"] == "k" * 100
    assert plain["notes"][0].startswith("times were measured under")
    speedup = cli("compare", str(stored), "--level=scope", "--speedup").stdout
    assert "speed-up over x by scope time median" in speedup
    assert "0.833x" in speedup
    assert "geometric mean" not in speedup


def test_a_single_scope_is_named(cli, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    fields = of_scopes(scope("mlp", [500_000] * 2))
    for record in sides([fields] * 6, [fields] * 6):
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    shown = cli("compare", str(folder), "--level=scope").stdout
    assert shown.startswith("no difference: y is within ±5% of x (0% faster)")
    assert "scope=mlp phase=forward" in shown


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--classical"], "--level=scope compares only profiled times; leave --classical out"),
        (["--unit=block"], "leave --unit=block out"),
        (["--metric=samples_per_s"], "leave --metric out"),
        (["--statistic=p10", "--classical"], "leave --statistic, --classical out"),
        (["-o", "x.svg"], "leave --output out"),
    ],
)
def test_options_of_timed_blocks_are_refused_in_one_line(cli, stored, args, message):
    done = cli("compare", str(stored), "--level=scope", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
