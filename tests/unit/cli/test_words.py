"""The same words and units everywhere: plurals, rates and sizes, and messages of several lines."""

import json

import msgspec
import pytest
from support.records import make_record
from unit.bundles.test_bundle import RUN, make_run, members, rebuild

from benchmarker.cli.display.machine import machine_rows
from benchmarker.cli.display.profiles import cell
from benchmarker.formatting import count, duration_s, one_line, si
from benchmarker.machine.gpus import Gpu


def test_a_plural_fits_its_number():
    assert [count(number, "fault") for number in (0, 1, 2)] == ["0 faults", "1 fault", "2 faults"]
    assert [count(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]


def test_one_fault_of_a_bundle_is_one_fault(command, tmp_path):
    assert command("bundle", "create", str(make_run(tmp_path / "mine")), "-o", "bid.zip").returncode == 0
    files = members(tmp_path / "bid.zip")
    log = next(name for name in files if name.endswith(".log"))
    rebuild(tmp_path / "bid.zip", {**files, log: b"another"}, listed=files)
    done = command("bundle", "verify", "bid.zip")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "NOT VERIFIED: 1 fault\n" in done.stdout
    assert RUN in done.stdout


def test_rates_are_decimal_and_sizes_binary():
    assert cell("bytes_per_s", 2e9) == si(2e9, "B/s") == "2 GB/s"
    assert cell("bytes", 2**31) == si(2**31, "B") == "2 GiB"


def test_a_card_is_described_with_units():
    card = Gpu(0, "Card", "GPU-a", None, None, 80 * 2**30, 700.0, None, None, 0)
    rows = dict(machine_rows(msgspec.structs.replace(make_record().machine, gpus=[card])))
    assert rows["GPU 0"] == "index 0, name Card, uuid GPU-a, memory 80 GiB, power limit 700 W, processes 0"
    assert rows["memory"].endswith("iB")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), ("250ms", 0.25), ("2min", 120)])
def test_a_duration_is_read(text, seconds):
    assert duration_s(text) == seconds


def test_a_bare_duration_is_in_the_unit_asked_for():
    assert (duration_s("2", "m"), duration_s("2s", "m")) == (120, 2)
    with pytest.raises(ValueError, match=r"'soon' is not a time: write 250ms, 90s, 10m or 1\.5h"):
        duration_s("soon")


def test_a_message_of_several_lines_is_one_line_in_a_table(command, distribution, tmp_path, monkeypatch):
    assert one_line(" no lib\n\n  see\tREADME ") == "no lib see README"
    raising = "raise ImportError('no lib\\n\\n  see the README')\n"
    refusing = (
        "from benchmarker import UserError, hookimpl\n@hookimpl\ndef describe_framework():\n"
        "    raise UserError('no card\\n  and no driver')\n@hookimpl\ndef make_framework(): pass\n"
    )
    distribution(
        "odd",
        {"meter.odd": "odd.meter", "framework.odd": "odd.framework", "workload.gemm.odd": "odd.framework"},
        {"__init__.py": "", "meter.py": raising, "framework.py": refusing},
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    for words in (("power", "--power=odd"), ("list", "meters")):
        done = command(*words)
        assert "meter.odd cannot be imported: no lib see the README" in done.stdout
        assert r"\x0a" not in done.stdout + done.stderr
    done = command("sweep", "--problem=gemm", "--framework=odd,numpy", "--dry-run")
    assert "no card and no driver\n" in done.stdout
    listed = json.loads(command("list", "meters", "--json").stdout)
    assert [row["reason"] for row in listed if row["name"] == "odd"] == [
        "library_missing: meter.odd cannot be imported: no lib see the README"
    ]
