"""`fit`: a line for each case over a size."""

import csv
import io
import json

import pytest
from support.records import make_record

from benchmarker.files import atomic


@pytest.fixture
def results(tmp_path):
    """Copies of 4 sizes in two directions, in 6 rounds; 10 µs and 1 GB/s there, 20 µs and 2 GB/s back."""

    def write(trials=6, sizes=(1000, 10_000, 100_000, 1_000_000)):
        folder = tmp_path / "results"
        folder.mkdir(exist_ok=True)
        for at, direction in enumerate(("to_device", "from_device")):
            for number, size in enumerate(sizes):
                for trial in range(trials):
                    step_s = (at + 1) * 1e-5 + size / ((at + 1) * 1e9)
                    params = {"bytes": size, "direction": direction, "memory": "pageable"}
                    case = {"problem": "transfer", "framework": "torch", "params": params}
                    design = {"case_number": at * len(sizes) + number}
                    record = make_record(step_s, trial=trial, case=case, design=design)
                    atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))

    return write


def test_each_case_has_its_line(command, results):
    results()
    done = command("fit", "results", "--over=bytes")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "_device" in line]
    assert ["10 [10, 10] µs" in row and "1 [1, 1] GB/s" in row for row in rows] == [True, False]
    assert ["20 [20, 20] µs" in row and "2 [2, 2] GB/s" in row for row in rows] == [False, True]
    assert "bytes=1000..1000000" in done.stdout
    assert "note" not in done.stdout


def test_json_and_csv_have_the_numbers(command, results):
    results()
    there, back = json.loads(command("fit", "results", "--over=bytes", "--json").stdout)
    assert (there["configuration"]["direction"], there["trials"]) == ("to_device", 6)
    assert there["start"]["value"] == pytest.approx(1e-5, rel=1e-6)
    assert [back["rate"][name] for name in ("value", "low", "high")] == pytest.approx([2e9] * 3, rel=1e-6)
    assert there["residual"] < 1e-6
    (row, _) = csv.DictReader(io.StringIO(command("fit", "results", "--over=bytes", "--csv").stdout))
    assert float(row["rate low"]) == pytest.approx(1e9, rel=1e-6)


def test_few_trials_have_no_interval(command, results):
    results(trials=2)
    done = command("fit", "results", "--over=bytes")
    assert "10 µs " in done.stdout
    assert "[" not in done.stdout
    assert "note: too few trials for intervals; --trials=6 or more give them" in done.stdout


@pytest.mark.parametrize(("sizes", "over"), [((1000, 2000), "bytes"), ((1000, 2000, 3000), "direction")])
def test_without_three_sizes_it_says_what_varies(command, results, sizes, over):
    results(sizes=sizes)
    done = command("fit", "results", f"--over={over}")
    assert done.returncode == 2
    assert f"--over={over}: no case has 3 values of it with step times that grow; what varies: bytes" in done.stderr
    assert command("fit", "results", "--over=seed").returncode == 2


def test_the_size_must_be_named(command, results):
    results()
    done = command("fit", "results")
    assert done.returncode == 2
    assert "--over" in done.stderr
