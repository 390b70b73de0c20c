"""What a buyer reads: the answer, its doubts, what was measured, scores, costs and acceptance."""

import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest
from support.records import QUIET, make_energy, make_record

from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.page import assemble
from benchmarker.page.gather import Procurement, gather
from benchmarker.page.render import render
from benchmarker.records import store
from benchmarker.records.machine import Gpu
from benchmarker.records.suite import SuiteCase, make_suite

STEPS = [1.00, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.00]
COST = """
currency = "EUR"
electricity_price_per_kWh = 0.25
pue = 1.3
lifetime_years = 5
utilisation = 0.7
side."a".price = 250000
side."b".price = 310000
side."c".price = 240000
"""


def offer(folder, factor, *, precisions=("fp32", "bf16"), **fields):
    """Write a run of a case in each precision, whose steps take `factor` times as long."""
    folder.mkdir()
    for number, precision in enumerate(precisions):
        for trial, step_s in enumerate(STEPS[number:] + STEPS[:number]):
            record = make_record(
                factor * step_s * (1 + number),
                run=folder.name,
                trial=trial,
                case={"precision": precision},
                design={"case_number": number, "session": trial},
                energy=make_energy(400.0 * step_s),
                **fields,
            )
            (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    return folder


@pytest.fixture
def offers(tmp_path, monkeypatch):
    """Three offers and the folder they are in, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, factor in (("a", 1.0), ("b", 0.8), ("c", 1.005)):
        offer(tmp_path / name, factor)
    (tmp_path / "cost.toml").write_text(COST)
    (tmp_path / "weights.toml").write_text('[[weight]]\nmatch = { precision = "bf16" }\nweight = 3\n')
    (tmp_path / "reference.toml").write_text(
        'format_version = 1\n[[case]]\nname = "fast"\nmatch = { precision = "fp32" }\nmin = 2.2\n'
    )
    return tmp_path


def section(page, key):
    return next(each for each in page.sections if each.key == key)


def table(page, title):
    found = [part for each in page.sections for part in each.parts if part.title == title]
    return found[0].table


def rows(page, title):
    """The rows of a table as dictionaries."""
    one = table(page, title)
    return [dict(zip([column.name for column in one.columns], row, strict=True)) for row in one.rows]


def doubts(page):
    return [each.text for each in page.doubts]


def written(command, *words):
    """The text of the page that the command writes, without scripts."""
    done = command("report", *words, "-o", "page.html")
    assert done.returncode == 0, done.stderr
    return re.sub(r"<script.*?</script>|<[^>]*>", "", Path("page.html").read_text("utf-8"), flags=re.S)


def test_the_page_has_the_numbers_of_suite_score_in_its_direction(command, offers):
    text = written(command, "a", "b", "--cost=cost.toml", "--weights=weights.toml")
    options = ("--cost=cost.toml", "--weights=weights.toml")
    (score,) = json.loads(command("suite", "score", "a", "b", *options, "--json").stdout)["scores"]
    for metric in score["metrics"]:
        mean = metric["mean"]
        assert f"{mean['ratio']:.3f}" in text
        assert f"[{mean['low']:.3f}, {mean['high']:.3f}]" in text
    assert score["metrics"][0]["mean"]["ratio"] == pytest.approx(1.25)
    said = r"over 2 cases \(geometric mean\): b is 25\S*% faster than a \(±\S+%\)\.\s+samples/s: score 1\.250;"
    assert re.search(said, text)
    assert "0.800" not in text  # the same fact in the other direction
    assert "Weights: 3 where precision=bf16; otherwise 1." in text


def test_the_verdicts_of_two_results_are_those_of_compare(command, offers):
    text = written(command, "a", "b")
    family = json.loads(command("compare", "a", "b", "--metric=samples_per_s", "--json").stdout)["family"]
    for each in family["comparisons"]:
        assert f"{each['ratio']:.3f}" in text
        assert f"{each['p_adjusted']:.2g}" in text


def test_several_results_are_ranked_and_the_best_of_each_metric_is_at_the_top(page_of, offers):
    made = page_of(offers / "a", offers / "b", offers / "c")
    assert [(card.word, card.figure) for card in made.cards[:2]] == [
        ("rank 1: faster", "25.0% faster"),
        ("rank 2: same", made.cards[1].figure),
    ]
    speed = [row for row in rows(made, "Scores") if row["metric"] == "samples/s"]
    assert [(row["rank"], row["side"].rpartition("/")[2]) for row in speed] == [(1, "b"), (2, "a"), (2, "c")]
    assert speed[1]["verdict"] == "baseline"
    assert [row[0] for row in made.evidence.table.rows] == [str(offers / name) for name in "abc"]
    by_case = rows(made, "samples/s by case")
    assert [row["case"] for row in by_case] == ["fp32", "bf16"]
    (case, *_), columns = table(made, "samples/s by case").rows, table(made, "samples/s by case").columns
    assert [each.name.endswith((" / a", "from", "to")) for each in columns[1:]] == [True] * 6
    assert [case[1], case[4]] == pytest.approx([1.25, 1 / 1.005])
    assert case[2] < case[1] < case[3]
    said = section(made, "score").lead[0]
    assert re.fullmatch(
        r"samples/s: \S*b is fastest: 25.0% faster than \S*a, .* faster than \S*c; .* differ significantly\.", said
    )


def test_a_single_case_has_one_interval_and_one_verdict_on_the_page(offers):
    for path in offers.glob("*/*.json"):
        if store.read_record(path).case.precision == "bf16":
            path.unlink()
    read = [(offers / name, *store.read([offers / name])) for name in "abc"]
    study = gather(read, Rules(metric="samples_per_s"))
    made, _ = assemble.page(study)
    scores = {row["side"]: row for row in rows(made, "Scores") if row["metric"] == "samples/s"}
    for each in rows(made, "Comparisons"):
        score = scores[each["contender B"]]
        assert (each["B/A"], each["from"], each["to"]) == (
            score["score"],
            score["interval from"],
            score["interval to"],
        )
        assert each["verdict"] == score["verdict"]
    means = [mean for mean in study.scores.rankings[0].pairs if mean.baseline.endswith("a")]
    assert [each["p"] for each in rows(made, "Comparisons")] == [mean.p_adjusted for mean in means]
    assert study.family.comparisons[0].p_adjusted > 2 * study.family.comparisons[0].p_value


def test_the_cost_is_that_of_the_file_and_needs_an_entry_for_each_side(command, offers):
    text = written(command, "a", "b", "--cost=cost.toml")
    basis = json.loads(command("suite", "score", "a", "b", "--cost=cost.toml", "--json").stdout)["costs"]
    for each in basis:
        assert f"{each['cost_per_hour']:.4g}" in text
    assert "250000" in text
    (offers / "d").symlink_to("b")
    assert "has no costs for the contender (d)" in command("report", "a", "d", "--cost=cost.toml").stderr
    assert "--cost and --weights need two results" in command("report", "a", "--cost=cost.toml").stderr


def test_an_axis_is_scored_if_prices_are_given(page_of, offers):
    (offers / "cost.toml").write_text(COST.replace('"a"', "fp32").replace('"b"', "bf16").replace('side."c"', "side.x"))
    made = page_of(offers / "a", by="precision", procurement=Procurement(cost=offers / "cost.toml"))
    assert [row["side"] for row in rows(made, "Cost")] == ["fp32", "bf16"]
    assert "score" not in {each.key for each in page_of(offers / "a", by="precision").sections}


def test_acceptance_is_that_of_the_command_for_each_result(command, page_of, offers):
    made = page_of(offers / "a", offers / "b", procurement=Procurement(reference=offers / "reference.toml"))
    assert [(card.word, card.figure) for card in made.cards[-2:]] == [("failed", "0 of 1"), ("passed", "1 of 1")]
    (row,) = rows(made, "a")
    assert (row["verdict"], row["case"], row["median"], row["min"]) == ("FAIL", "fast", "2", "2.2")
    assert row["why"] == "the median is 9.09% below 2.2"
    assert row["why"] in command("suite", "accept", "a", "--reference=reference.toml").stdout


def test_results_of_different_work_have_no_score_and_the_page_says_why(page_of, tmp_path):
    made = page_of(*(offer(tmp_path / name, 1.0, precisions=(name,)) for name in ("fp32", "fp16")))
    assert "score" not in {each.key for each in made.sections}
    assert "precision" in made.cards[0].sentence


def test_doubts_about_a_side_are_on_the_first_screen(page_of, offers, tmp_path):
    busy = msgspec.structs.replace(QUIET, other_busy_cores=11.8)
    machine = make_record().machine
    cpu = msgspec.structs.replace(machine.cpu, logical_cores=64, usable_cores=32)
    half = msgspec.structs.replace(machine, host="other", cpu=cpu, cpu_quota_cores=None)
    made = page_of(offers / "a", offer(tmp_path / "h", 0.8, interference=busy, machine=half))
    assert made.cards[0].word == "faster (provisional)"
    told = doubts(made)
    assert told[0].startswith("2 of 2 verdicts are provisional")
    assert any(
        re.fullmatch(r"h: 16 of 16 trials were disturbed, .* 11\.8 cores busy \(16 trials\); stop .*\.", each)
        for each in told
    )
    assert any(each == "h: measured on 32 of 64 cores." for each in told)
    assert any(each.startswith("Environments differ: host ") for each in told)
    keys = {each.key for each in made.sections}
    assert {each.section for each in made.doubts} <= keys
    text = render(made).decode()
    assert text.index("What to know before you rely on it") < text.index("<main")


def test_a_page_without_doubts_says_so(page_of, offers):
    made = page_of(offers / "a", offers / "b")
    assert doubts(made) == []
    text = render(made).decode()
    assert "No doubt was found" in text


def test_different_and_missing_suites_are_told(page_of, offers, tmp_path):
    folder = offer(tmp_path / "s", 1.0)
    suite = make_suite("tender", "2", [SuiteCase(settings={"problem": "nap"}, case_numbers=[0])], 8, "rounds")
    for file in folder.glob("*.json"):
        record = msgspec.structs.replace(store.read_record(file), suite=suite.of(0))
        file.write_bytes(atomic.encode(record))
    made = page_of(offers / "a", folder)
    assert any(each.startswith(f"Suites differ: none → tender 2 ({suite.sha256[:12]})") for each in doubts(made))
    row = next(row for row in table(made, "Sides").rows if row[0] == "suite")
    assert row == ("suite", "none", f"tender 2 ({suite.sha256[:12]})")


def test_what_was_measured_stands_side_by_side_and_differences_are_marked(page_of, offers, tmp_path):
    gpu = Gpu(0, "H200", "GPU-1", "570.1", "9.0", 2**37, 700.0, "off", "off", 0)
    machine = msgspec.structs.replace(make_record().machine, gpus=[gpu], model="Maker R750")
    plain = make_record().device
    device = msgspec.structs.replace(plain, platform="cuda", name="H200", uuid="GPU-1", memory_bytes=2**37)
    made = page_of(offers / "a", offer(tmp_path / "g", 0.8, machine=machine, device=device))
    one = table(made, "Sides")
    assert [column.name.rpartition("/")[2] for column in one.columns] == ["property", "a", "g"]
    found = {row[0]: (index in one.marked, *row[1:]) for index, row in enumerate(one.rows)}
    same = next(part for part in section(made, "measured").parts if part.title.startswith("The same on both ("))
    assert same.folded and same.title == f"The same on both ({len(same.table.rows)})"
    found |= {name: (False, value, value) for name, value in same.table.rows}
    assert found["device"] == (True, "the processor", "H200, 128 GiB")
    assert found["driver"] == (True, "-", "570.1")
    assert found["toy"] == (False, "1.0", "1.0")
    assert found["trials"] == (False, "16 of 16 succeeded", "16 of 16 succeeded")
    assert found["machine"] == (True, "-", "Maker R750")
    assert [(name.rpartition("/")[2], what) for name, what in made.sides[:2]] == [
        ("a", "device the processor"),
        ("g", "device H200, 128 GiB; machine Maker R750; driver 570.1; power limit 700 W"),
    ]
    assert made.sides[2][0] == "The same on both"
    assert "; framework toy eager; toy 1.0; " in made.sides[2][1]
    assert {"host", "processor", "cores used", "memory", "framework", "suite", "runs", "measured on"} <= found.keys()


def test_a_problem_is_a_panel_and_a_side_has_one_colour(page_of, tmp_path):
    for name, factor in (("a", 1.0), ("b", 0.8)):
        folder = offer(tmp_path / name, factor)
        for number, problem in enumerate(("nap", "rest")):
            case, design = {"problem": problem}, {"case_number": number}
            record = make_record(factor, run=f"{name}{problem}", case=case, design=design)
            (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    made = page_of(tmp_path / "a", tmp_path / "b")
    figures = {figure.key: figure for figure in made.figures}
    assert figures["samples_per_s-0"].title.endswith(", nap, samples/s")
    assert len(figures["samples_per_s-1"].rows) == 2
    sides = [row[1].rpartition("/")[2] for row in figures["samples_per_s-0"].data.rows]
    assert sides == ["a", "b"] * 2
    for key in ("samples_per_s-0", "samples_per_s-1", "blocks-0", "blocks-1"):
        colours = {mark.name.rpartition("/")[2]: mark.series for mark in figures[key].marks if mark.name != "trials"}
        assert colours == {"a": 0, "b": 1}, key
    assert {mark.series for mark in figures["ratios"].marks} == {1}


def test_many_parameters_neither_slow_nor_widen_the_page(page_of, place):
    params = {f"parameter_{number}": number for number in range(1000)}
    records = [
        make_record(step_s, trial=trial, case={"framework": name, "params": params}, design={"case_number": number})
        for number, name in enumerate(("one", "two"))
        for trial, step_s in enumerate(STEPS)
    ]
    made = page_of(place(records))
    assert max(len(text) for part in ("measured", "verdicts") for text in section(made, part).lead) < 500
    for each in made.sections:
        for part in each.parts:
            names = part.rows if hasattr(part, "marks") else [row[0] for row in part.table.rows]
            assert max(map(len, names), default=0) < 500, part.title


def test_no_markers_of_code_and_of_line_breaks_are_on_the_page(page_of, place, two, failed):
    records = two(STEPS, STEPS)
    records[0] = failed(records[0], "first line\n  second `line`")
    text = render(page_of(place(records))).decode()
    shown = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "`" not in shown.replace("second `line`", "")  # a message is shown as it is
    assert "\\x0a" not in shown
    assert "first line second" in shown
    assert '<code>benchmarker ceilings <span class="whole">--precision</span>=fp32</code>' in shown


def test_the_digest_of_a_result_is_that_of_its_record_files_one_after_the_other(page_of, offers):
    made = page_of(offers / "a", offers / "b")
    rows = made.evidence.table.rows
    assert [(Path(row[0]).name, row[1]) for row in rows] == [("a", 16), ("b", 16)]
    for result, _, _, digest in rows:
        content = b"".join(file.read_bytes() for file in sorted(Path(result).glob("*.json")))
        assert digest == hashlib.sha256(content).hexdigest()
    assert rows[0][3] != rows[1][3]


def test_the_picture_is_of_few_comparisons_or_of_their_means(page_of, tmp_path):
    few = page_of(offer(tmp_path / "a", 1.0), offer(tmp_path / "b", 0.8))
    assert few.picture.key == "ratios"
    assert not any(figure.key == "ratios" for figure in few.figures[1:])
    sides = [
        make_record(
            step_s * (1 + number),
            run=f"run-{seed}",
            trial=trial,
            case={"framework": name, "seed": seed},
            design={"case_number": number},
        )
        for seed in range(9)
        for number, name in enumerate(("one", "two"))
        for trial, step_s in enumerate(STEPS)
    ]
    folder = tmp_path / "many"
    folder.mkdir()
    for record in sides:
        (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    many = page_of(folder)
    (mark,) = many.picture.marks
    assert (many.picture.key, many.picture.rows) == ("mean-ratios", ("two, mean of 9 cases",))
    assert mark.x == pytest.approx((2.0,))
    assert len(next(figure for figure in many.figures if figure.key == "ratios").rows) == 9
