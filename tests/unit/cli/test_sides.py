"""Several results of a command are sides: two bidders are never pooled silently."""

import csv
import io
import json

import msgspec
import pytest
from support.records import make_record

from benchmarker.files import atomic

OFFERS = ("offers/a", "offers/b")


def store(folder, step_s, host, sizes=(512, 1024), frameworks=("toy", "x"), case=()):
    folder.mkdir(parents=True)
    number = 0
    for framework in frameworks:
        for size in sizes:
            for trial in range(2):
                record = make_record(
                    step_s * size / 512,
                    run=folder.name,
                    trial=trial,
                    case={"framework": framework, "params": {"m": size}, **dict(case)},
                    design={"case_number": number},
                )
                machine = msgspec.structs.replace(record.machine, host=host)
                record = msgspec.structs.replace(record, machine=machine)
                atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
            number += 1


@pytest.fixture
def offers(tmp_path):
    """Submissions of two bidders: two frameworks and two sizes, of which the second bidder needs half the time."""
    store(tmp_path / "offers/a", 1.0, "host-a")
    store(tmp_path / "offers/b", 0.5, "host-b")
    return tmp_path


def test_show_has_a_line_for_each_case_of_each_side(command, offers):
    done = command("show", *OFFERS, "--metric=step_time_median_s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("offers/")]
    assert [line.split()[0] for line in lines] == list(OFFERS) * 4
    steps = ("  1 s  ", "  500 ms  ", "  2 s  ", "  1 s  ") * 2
    assert all(step in line for step, line in zip(steps, lines, strict=True))
    assert "several machines" not in done.stdout
    pooled = command("show", *OFFERS, "--pool")
    assert "offers/" not in pooled.stdout
    assert "note: 4 of 4 cases mix trials of several machines: host-a, host-b" in pooled.stdout
    assert command("show", "offers").stdout == pooled.stdout
    records = json.loads(command("show", *OFFERS, "--json").stdout)
    assert [record["side"] for record in records] == ["offers/a"] * 8 + ["offers/b"] * 8
    assert "side" not in json.loads(command("show", "offers", "--json").stdout)[0]
    assert command("show", *OFFERS, "--trials").stdout.count("offers/b") == 8


def test_pareto_compares_the_sides_within_the_same_work(command, offers):
    points = json.loads(command("pareto", *OFFERS, "--metric=samples_per_s", "--json").stdout)
    found = {(each["configuration"]["side"], each["configuration"]["m"]): each["optimal"] for each in points}
    assert found == {("offers/a", 512): False, ("offers/a", 1024): False, ("offers/b", 512): True} | {
        ("offers/b", 1024): True
    }
    shown = command("pareto", *OFFERS, "--metric=samples_per_s").stdout
    assert sum("optimal" in line and "offers/b" in line for line in shown.splitlines()) == 4
    assert shown.count("optimal") == 4


def test_pareto_says_what_has_nothing_to_compare_with(command, tmp_path):
    store(tmp_path / "one", 1.0, "host", frameworks=("toy",))
    done = command("pareto", "one")
    assert done.stdout.count("only one\n") == 2
    assert "note: 2 of 2 configurations have no other of the same work" in " ".join(done.stdout.split())
    assert [each["optimal"] for each in json.loads(command("pareto", "one", "--json").stdout)] == [None, None]


def test_a_table_has_the_sides_in_its_columns_or_refuses_to_mix_them(command, offers):
    done = command("table", *OFFERS, "--rows=m")
    assert "toy offers/a" in done.stdout
    assert "x offers/b" in done.stdout
    refused = command("table", *OFFERS, "--rows=m", "--columns=framework")
    assert refused.returncode == 2
    assert "cases that differ in side (offers/a, offers/b) would share a cell" in refused.stderr
    chosen = command("table", *OFFERS, "--rows=m", "--where=side=offers/b")
    assert chosen.returncode == 0
    assert "offers/" not in chosen.stdout
    assert "host-a, host-b" in command("table", *OFFERS, "--rows=m", "--pool").stdout


@pytest.mark.parametrize("sizes", [(512,), (512, 1024)])
def test_one_comparison_has_the_columns_of_several_in_csv_and_a_table_in_markdown(command, tmp_path, sizes):
    store(tmp_path / "offers/a", 1.0, "host", sizes)
    done = command("compare", "offers/a", "--by=framework", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    told = [(row["verdict"], row["trials A"], row["trials B"]) for row in rows]
    assert told == [("undecided", "2", "2")] * len(sizes)
    assert [float(row["step_time_median_s A"]) for row in rows] == [size / 512 for size in sizes]
    assert "undecided" in done.stderr
    table = command("compare", "offers/a", "--by=framework", "--format=markdown").stdout
    assert len([line for line in table.splitlines() if "undecided" in line]) == len(sizes)


def test_an_axis_is_compared_within_each_side_unless_it_tells_the_sides_apart(command, offers):
    def cases(*options):
        family = json.loads(command("compare", *OFFERS, "--json", *options).stdout)["family"]
        return {each["name"] for each in family["comparisons"]}

    assert {name.partition(":")[0] for name in cases("--by=framework")} == set(OFFERS)
    assert len(cases("--by=framework")) == 4
    assert len(cases("--by=framework", "--pool")) == 2
    assert len(cases("--by=host")) == 4
    assert not any("offers" in name for name in cases("--by=host"))
    refused = command("compare", *OFFERS, "--pool")
    assert (refused.returncode, refused.stderr.count("--pool needs --by")) == (2, 1)
    scored = json.loads(command("suite", "score", *OFFERS, "--by=framework", "--json").stdout)
    assert len(scored["scores"][0]["metrics"][0]["by_case"]) == 4


def test_each_side_is_accepted_by_itself_and_a_reference_is_of_one(command, offers):
    refused = command("suite", "accept", *OFFERS, "--write=made.toml")
    assert refused.returncode == 2
    assert "a reference is that of one side, and there are 2: name one of offers/a, offers/b" in refused.stderr
    assert command("suite", "accept", "offers/b", "--write=made.toml", "--tolerance=5%").returncode == 0
    done = command("suite", "accept", *OFFERS, "--reference=made.toml")
    assert done.returncode == 1
    assert (done.stdout.count("FAIL offers/a: "), done.stdout.count("PASS offers/b: ")) == (4, 4)
    mixed = command("suite", "accept", "offers", "--write=mixed.toml", "--tolerance=5%")
    assert "4 of 4 cases mix trials of several machines: host-a, host-b" in mixed.stderr


def test_a_series_of_scaling_is_of_one_side(command, tmp_path):
    for name, step_s in (("a", 1.0), ("b", 0.5)):
        store(tmp_path / name / "one", step_s, "host", sizes=(512,), frameworks=("toy",))
        store(tmp_path / name / "two", step_s / 2, "host", sizes=(512,), frameworks=("toy",), case={"devices": 2})
        for run in ("one", "two"):
            for file in (tmp_path / name / run).iterdir():
                record = msgspec.json.decode(file.read_bytes())
                record["run_id"], record["trial_id"] = f"{name}{run}", f"{name}{record['trial_id']}"
                (tmp_path / name / run / f"{record['trial_id']}.json").write_bytes(msgspec.json.encode(record))
                file.unlink()
    series = json.loads(command("scaling", "a", "b", "--json").stdout)["series"]
    assert [each["name"].partition(":")[0] for each in series] == ["a", "b"]
    assert [round(each["points"][1]["speedup"]["value"], 3) for each in series] == [2, 2]
    assert "nothing is scaled" in command("scaling", "a/one", "a/two").stderr
    assert command("scaling", "a/one", "a/two", "--pool").returncode == 0
