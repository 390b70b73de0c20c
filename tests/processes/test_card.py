"""The card of a machine, measured in real processes."""

import csv
import io
import json

import pytest
from support.records import make_ceiling, make_record

from benchmarker.records import ceilings
from benchmarker.records.ceilings import key_of


def test_a_card_is_measured_stored_and_shown_again(cli, tmp_path):
    device = key_of(make_record())
    ceilings.keep([make_ceiling(1e11, device=device), make_ceiling(2e10, "memory", device=device)])
    done = cli("card", "--framework=numpy", "--trials=1", "--json")
    assert done.returncode == 0, done.stderr
    assert "next, the ceilings" not in done.stderr  # they are known
    found = json.loads(done.stdout)
    (launches,) = found["launches"]
    assert (launches["framework"], launches["device"], launches["kernels"]) == ("numpy", "cpu", 1000)
    assert 0 < launches["enqueue_s"]["value"] < 1e-3
    assert launches["enqueue_s"]["low"] is None
    assert launches["kernels_per_s"]["value"] > 1 / launches["complete_s"]["value"] / 10
    assert sorted(found["reasons"]) == ["copies", "loads"]
    assert [each["value"] for each in found["ceilings"]] == [1e11, 2e10]
    (run,) = (tmp_path / "results").iterdir()
    again = cli("card", str(run), "--json")
    assert json.loads(again.stdout) == found
    one, *rows = csv.DictReader(io.StringIO(cli("card", str(run), "--csv").stdout))
    assert (one["part"], one["figure"], float(one["value"]), one["unit"]) == ("ceiling", "compute fp32", 1e11, "FLOP/s")
    assert [(each["part"], each["figure"], each["unit"]) for each in rows] == [
        ("ceiling", "memory fp32", "B/s"),
        ("launch", "enqueue", "s"),
        ("launch", "complete", "s"),
        ("launch", "kernels", "1/s"),
    ]
    assert float(rows[1]["value"]) == launches["enqueue_s"]["value"]


@pytest.mark.slow
def test_ceilings_that_are_not_known_are_measured_with_the_same_frameworks(cli):
    done = cli("card", "--framework=numpy", "--trials=1", "-q", "--json")
    assert done.returncode == 0, done.stderr
    assert "next, the ceilings that are not known" in done.stderr
    found = json.loads(done.stdout)
    assert {(each["resource"], each["framework"]) for each in found["ceilings"]} == {
        ("compute", "numpy"),
        ("memory", "numpy"),
    }
