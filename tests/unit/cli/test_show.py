"""`show`: a line for each case, or for each trial, of records made by hand."""

import cProfile
import csv
import io
import json
import pstats
import re

import msgspec
import pytest
from support.records import QUIET, make_ceiling, make_record
from support.texts import make_text, prediction

from benchmarker.api.case import Measuring
from benchmarker.cli.display.output import print_json, print_json_list
from benchmarker.display import counters
from benchmarker.display.records import cases_output
from benchmarker.files import atomic
from benchmarker.formatting import si
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import ceilings
from benchmarker.records.plan import make_plan
from benchmarker.records.record import CostPart, EventCount, TokenTimes
from benchmarker.roofline.roofs import Roof
from benchmarker.tables import results, terminal
from benchmarker.tables.table import Table

FAILURE = {"kind": "out_of_memory", "message": "too much", "stage": "timed"}
TEXT = CostPart(flops=600, recomputed_flops=0, bytes=8, samples=2, tokens=8, input_tokens=20, output_tokens=8)
STEPS = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]


@pytest.fixture
def stored(tmp_path):
    """Stores records in a folder of runs, named `results`."""

    def store(*records):
        for number, record in enumerate(records):
            path = tmp_path / "results" / record.run_id / f"{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(atomic.encode(msgspec.structs.replace(record, trial_id=f"{number:04}")))

    return store


def trials(steps, number=0, **case):
    return [make_record(step, trial=at, case=case, design={"case_number": number}) for at, step in enumerate(steps)]


def failed(record):
    return msgspec.convert({**msgspec.to_builtins(record), "status": "failed", "error": FAILURE}, type(record))


def cells(text):
    """The cells of each line; at least two spaces separate them."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines()]


def test_a_case_is_a_line_with_the_median_and_the_interval_of_its_trials(command, stored):
    stored(*trials(STEPS), *trials([2 * step for step in STEPS], 1, framework="other"))
    shared, headings, one, two = cells(command("show", "results").stdout)
    assert shared == ["nap ms=1.0 fp32 on cpu, eager"]
    assert headings[:4] == ["framework", "step time", "95% interval", "samples/s"]
    assert one[:3] == ["toy", "1.25 s", "1–1.5 s"]  # the extremes of six trials are the interval
    assert two[:3] == ["other", "2.5 s", "2–3 s"]
    assert (headings[-1], one[-1]) == ("trials", "6")


def test_csv_has_numbers_in_base_units_and_the_ends_of_intervals(command, stored):
    stored(*trials(STEPS), *trials([2 * step for step in STEPS], 1, framework="other"))
    one, two = csv.DictReader(io.StringIO(command("show", "results", "--csv").stdout))
    assert [one[f"step_time_median_s{end}"] for end in ("", " low", " high")] == ["1.25", "1.0", "1.5"]
    assert (two["framework"], two["step_time_median_s"], two["host_peak_rss_bytes"]) == ("other", "2.5", "1048576.0")
    assert "95% interval" not in one


def test_where_mean_and_median_name_different_winners_a_row_shows_both_and_says_why(command, stored):
    """By the median of its four blocks toy is slower, 3.1 s against 2.1 s; by samples/s, the mean, it is faster."""
    stored(make_record([1.0, 3.1, 3.1, 1.0, 3.1]), make_record([2.1, 2.1, 2.1, 5.2, 5.2], case={"framework": "other"}))
    shown = command("show", "results", "--wide").stdout
    _, headings, one, two, note = cells(shown)[:5]
    columns = [headings.index(name) for name in ("step time (median)", "step time (mean)", "samples/s")]
    assert [one[at] for at in columns] == ["3.1 s", "2.26 s", "0.885"]
    assert [two[at] for at in columns] == ["2.1 s", "3.34 s", "0.5988"]
    assert note[0].startswith("note: the mean step time differs from the median in 2 of 2 trials (worst +59%)")
    assert "step time (mean)" in command("show", "results", "--trials").stdout
    assert "the mean" not in command("show", "results", "--metric=samples_per_s").stdout


def test_with_fewer_trials_the_spread_is_the_range_and_of_one_there_is_none(command, stored):
    stored(*trials(STEPS), *trials([0.25, 1.5], 1, framework="other"), *trials([1.0], 2, framework="third"))
    _, headings, *rows = cells(command("show", "results").stdout)
    assert headings[2] == "range"
    assert [row[2] for row in rows] == ["1–1.5 s", "250 ms–1.5 s", "-"]
    stored(*trials([1.0]), *trials([2.0], 1, framework="other"))


def test_single_trials_have_no_column_for_a_spread(command, stored):
    stored(*trials([1.0]), *trials([2.0], 1, framework="other"))
    headings = cells(command("show", "results").stdout)[1]
    assert headings[:3] == ["framework", "step time", "samples/s"]


def test_what_failed_and_what_was_disturbed_is_counted(command, stored):
    busy = msgspec.structs.replace(QUIET, other_busy_cores=1.0)
    one, two, three = trials([1.0, 1.0, 1.0])
    stored(one, msgspec.structs.replace(two, interference=busy), failed(three), *trials([1.0], 1, framework="other"))
    shown = command("show", "results").stdout
    _, headings, first, second, failure = cells(shown)
    assert headings[-3:] == ["trials", "failed", "disturbed"]
    assert (first[-3:], second[-3:]) == (["2", "1", "1"], ["1", "0", "0"])
    assert failure == ["FAILED toy, 1 of 3: out_of_memory: too much"]


def test_metrics_are_chosen_by_name_each_with_its_spread(command, stored):
    stored(*trials([1.0, 2.0]), *trials([1.0, 2.0], 1, framework="other"))
    done = command("show", "results", "--metric=host_peak_rss_bytes,samples_per_s")
    _, headings, one, _ = cells(done.stdout)
    assert headings == ["framework", "host peak rss", "range", "samples/s", "samples/s range", "trials"]
    assert one == ["toy", "1 MiB", "1–1 MiB", "1.5", "1–2", "2"]
    ambiguous = command("show", "results", "--metric=energy_J,total_energy_J,mean_power_W,idle_power_W").stdout
    assert cells(ambiguous)[1][1:5] == ["energy", "total energy", "mean power", "idle power"]
    assert results.headings(["nap_s", "nap_J", "samples_per_s"]) == {
        "nap_s": "nap_s",
        "nap_J": "nap_J",
        "samples_per_s": "samples/s",
    }
    done = command("show", "results", "--metric=speed")
    assert done.returncode == 2
    assert "no metric is named 'speed'; there are: ttft_s" in done.stderr


def test_times_of_tokens_stand_beside_the_step_time(command, stored):
    text = [
        make_record(step, trial=at, cost=TEXT, token_times=TokenTimes([round(1e9 * step)], [[20_000_000] * 3]))
        for at, step in enumerate(STEPS)
    ]
    stored(*text)
    _, headings, line = cells(command("show", "results").stdout)
    assert headings[:4] == ["step time", "95% interval", "ttft", "tpot"]
    assert line[2:4] == ["1.25 s", "20 ms"]
    _, headings, line = cells(command("show", "results", "--metric=ttft_s,itl_p50_s").stdout)
    assert (headings[:2], line[:2]) == (["ttft", "95% interval"], ["1.25 s", "1–1.5 s"])


def test_what_is_predicted_stands_beside_the_step_time_if_ceilings_are_known(command, stored):
    stored(*(make_text(step, trial=at, phase="decode") for at, step in enumerate(STEPS)))
    assert not [each for each in cells(command("show", "results").stdout)[1] if "predicted" in each]
    known = [make_ceiling(1e12), make_ceiling(1e6, "memory")]
    ceilings.keep(known)
    predicted_s = prediction(make_text(phase="decode"), Roof(1e12, 1e6)).time_s
    _, headings, line = cells(command("show", "results").stdout)
    assert headings[:4] == ["step time", "95% interval", "measured/predicted", "predicted"]
    assert line[2:4] == [f"{1.25 / predicted_s:.3g}", si(predicted_s, "s")]
    rows = dict(each[:2] for each in cells(command("show", "results/run/0.json").stdout) if len(each) > 1)
    assert rows["predicted_s"] == si(predicted_s, "s")


def test_one_record_shows_its_tokens_and_what_it_has_no_value_for_at_the_end(command, stored):
    stored(make_record(cost=TEXT, token_times=TokenTimes([1_000_000] * 2, [[20_000_000] * 3] * 2)))
    shown = command("show", "results").stdout
    assert ["tokens", "2 requests, 6 gaps, each token waited for"] in cells(shown)
    metrics = cells(shown)[4 : cells(shown).index([""], 4)]
    assert sorted(metrics, key=lambda line: line[1] == "-") == metrics
    assert {line[1] == "-" for line in metrics} == {True, False}


def test_trials_are_lines_if_asked_for(command, stored):
    stored(*trials([1.0, 2.0]), failed(make_record(trial=2)), *trials([4.0], 1, framework="other"))
    _, headings, *rows = cells(command("show", "results", "--trials").stdout)
    assert headings[:3] == ["framework", "trial", "step time"]
    assert [(*row[:3], row[-1]) for row in rows] == [
        ("toy", "0", "1 s", "ok"),
        ("toy", "1", "2 s", "ok"),
        ("toy", "2", "1 s", "out_of_memory"),
        ("other", "0", "4 s", "ok"),
    ]
    _, headings, *rows = cells(command("show", "results", "--trials", "--metric=samples_per_s").stdout)
    assert headings == ["framework", "trial", "samples/s", "status"]


def test_wide_adds_all_parameters_and_spreads(command, stored):
    stored(*trials([1.0, 1.0], params={"ms": 1.0}), *trials([2.0, 2.0], 1, params={"ms": 2.0}))
    shared, headings, one, _ = cells(command("show", "results", "--wide").stdout)
    assert shared[0].startswith("problem=nap framework=toy execution=eager mode=inference precision=fp32 device=cpu")
    assert headings[:4] == ["case", "ms", "step time", "range"]
    assert "samples/s range" in headings
    assert one[:2] == ["nap ms=1.0", "1.0"]


def test_a_single_record_is_shown_in_full_and_as_a_line_if_asked_for(command, stored):
    stored(make_record())
    assert "repeat with" in command("show", "results").stdout
    assert "repeat with" not in command("show", "results", "--trials").stdout
    assert "repeat with" not in command("show", "results", "--metric=samples_per_s").stdout


def test_json_has_every_record_whatever_the_table_shows(command, stored):
    stored(*trials(STEPS))
    found = json.loads(command("show", "results", "--json", "--metric=samples_per_s").stdout)
    assert len(found) == 6
    assert found[0]["metrics"]["step_time_median_s"] == {
        "value": 1.0,
        "unit": "s",
        "better": "lower",
        "reason": None,
        "headline": True,
    }


@pytest.mark.parametrize(("model", "shown"), [("Maker R750", "Maker R750"), (None, "unknown")])
def test_one_record_tells_the_model_of_the_machine(command, stored, tmp_path, model, shown):
    plain = make_record()
    machine = msgspec.structs.replace(plain.machine, model=model)
    reasons = plain.reasons | {"machine.model": "it is not told"}
    stored(msgspec.structs.replace(plain, machine=machine, reasons=reasons))
    assert ["model", shown] in cells(command("show", str(tmp_path / "results")).stdout)


COMMANDS = [
    "show {}",
    "show {} --trials",
    "compare {} --by=framework",
    "score {} --by=framework",
    "compare {0}/a {0}/b",
]
FEW = 25


def write(folder, runs):
    """Two results of runs with their plans, each a round of one seed in two frameworks."""
    for result in ("a", "b"):
        for run in range(runs):
            records = [
                make_record(
                    [1.0 + side / 10] * 30,
                    run=f"{result}{run}",
                    case={"framework": framework, "seed": run},
                    design={"case_number": side},
                )
                for side, framework in enumerate(("one", "two"))
            ]
            place = folder / result / f"{result}{run}"
            place.mkdir(parents=True)
            for record in records:
                (place / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
            plan = msgspec.structs.replace(make_plan([each.case for each in records], 1), run_id=f"{result}{run}")
            (place / "plan.json").write_bytes(atomic.encode(plan))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders with a few records, and with four times as many."""
    folders = [tmp_path_factory.mktemp(name) for name in ("few", "many")]
    for folder, runs in zip(folders, (FEW, 4 * FEW), strict=True):
        write(folder, runs)
    return folders


@pytest.mark.parametrize("words", COMMANDS)
def test_four_times_the_records_are_four_times_the_work(command, places, words):
    counts = []
    for folder in (places[0], *places):  # the first time, modules are imported
        profile = cProfile.Profile()
        profile.enable()
        command(*words.format(folder).split())
        profile.disable()
        counts.append(pstats.Stats(profile).total_calls)
    assert counts[2] <= 4.4 * counts[1]


@pytest.mark.parametrize("values", [[], [1], [{"a": [1, {"b": "x\ny\u202e\x1b"}], "c": {}}, {"a": None}]])
def test_a_list_printed_piece_by_piece_is_the_same(capsys, values):
    print_json(values)
    whole = capsys.readouterr().out
    print_json_list(iter(values))
    assert capsys.readouterr().out == whole
    assert "\u202e" not in whole


COUNTED = [EventCount("cycles", None, 0.0), EventCount("llc_misses", 6_400, 0.5), EventCount("task_clock", 2**21, 1.0)]
HIDDEN = "the virtual machine hides it"


def counted(counts, **fields):
    measuring = Measuring(counters=",".join(each.name for each in counts))
    reasons = make_record().reasons | {"counters[0].count": HIDDEN}
    return make_record(case={"measuring": measuring}, counters=counts, reasons=reasons, **fields)


def test_a_record_shows_what_was_counted_scaled_and_estimated(command, stored):
    stored(counted(COUNTED))
    lines = cells(command("show", "results").stdout)
    assert ["counters", "llc_misses 6,400, task_clock 2.097 ms"] in lines
    assert ["counters", "counted for part of the time, and scaled: llc_misses 50%"] in lines
    assert [line for line in lines if line[0] == "counters" and line[1].startswith("bytes from memory are an estimate")]
    assert ["cycles_per_step", "-", HIDDEN] in lines
    assert ["estimated_memory_bytes_per_step", "400 KiB", "lower is better"] in lines


def test_a_run_says_once_what_was_not_counted_and_what_was_scaled_most():
    less = [*COUNTED[:1], EventCount("llc_misses", 100, 0.25), *COUNTED[2:]]
    assert counters.notes([make_record(), counted(COUNTED), counted(less, trial=1)]) == [
        f"not counted: cycles: {HIDDEN}",
        "counted for part of the time, and scaled: llc_misses 25%",
    ]
    assert counters.notes([counted([EventCount("task_clock", 1, 0.995)])]) == []


def test_on_a_narrow_terminal_what_was_counted_stays():
    """It was asked for; rates that every trial has are left out before it."""
    cases = Cases.of([counted(COUNTED[1:], cost=CostPart(10**9, 0, 4096, 1, None))])
    table = next(part for part in cases_output(cases, load_metrics()) if isinstance(part, Table))
    printed = terminal.lines(table, 50)
    assert {"llc misses/step", "task clock/step"}.isdisjoint(printed.left_out)
    assert "samples/s" in printed.left_out


BLOCKS = [0.010, 0.010, 0.0105, 0.012]


def test_a_record_is_shown_with_a_histogram_of_its_blocks_in_text_alone(command, stored):
    stored(make_record(BLOCKS))
    lines = command("show", "results").stdout.splitlines()
    at = lines.index("4 blocks by step time")
    assert lines[at + 1].startswith("3 │█")
    assert lines[at + 7].split() == ["10", "ms", "median", "10.25", "ms", "12", "ms"]
    assert lines[at + 9].startswith("metric")
    for form in ("--json", "--csv", "--format=markdown"):
        done = command("show", "results", form)
        assert "by step time" not in done.stdout + done.stderr
        assert "█" not in done.stdout + done.stderr


def test_a_single_block_has_no_histogram(command, stored):
    stored(make_record(0.010))
    assert "by step time" not in command("show", "results").stdout


def test_trials_are_shown_with_strips_of_their_blocks_in_text_alone(command, stored):
    stored(make_record(BLOCKS), make_record([0.0105, 0.0105, 0.014], trial=1))
    _, headings, one, two = cells(command("show", "results", "--trials").stdout)[:4]
    assert headings[:3] == ["trial", "step time (median)", "blocks from 10 ms to 14 ms"]
    assert one[2] == "█··▅········▅···········"
    assert two[2] == "···█···················▅"
    for more in (["--csv"], ["--format=markdown"], ["--metric=samples_per_s"]):
        assert "blocks from" not in command("show", "results", "--trials", *more).stdout
    assert [record["trial"] for record in json.loads(command("show", "results", "--trials", "--json").stdout)] == [0, 1]
