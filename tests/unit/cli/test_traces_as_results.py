"""`roofline`, `report` and `compare` with profiler traces, and with files that are neither traces nor records."""

import json
import sqlite3

import pytest
from support import profiles


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    return "t.json"


def refused(done, *texts):
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    for text in texts:
        assert text in done.stderr


def test_kernels_of_a_trace_lie_under_the_roof_of_the_named_device(command, tmp_path, trace):
    assert command("profile", "import", trace).returncode == 0
    for name in (trace, "t.events.parquet"):
        device = ["--device=NVIDIA H200", "--precision=fp32", "--roof=vendor"]
        (found,) = json.loads(command("roofline", name, *device, "--json").stdout)["rooflines"]
        (point,) = found["points"]
        assert (point["level"], point["flops"]) == ("kernel", 2 * 2 * 3 * 4)
        assert point["achieved"] == pytest.approx(2 * 2 * 3 * 4 / 33.125e-6)  # of the kernel's own duration


def test_a_roofline_of_a_trace_needs_its_device(command, trace):
    refused(command("roofline", trace), "--device=NAME and --precision=NAME")
    refused(command("roofline", trace, "--device=abacus", "--precision=fp32", "--roof=vendor"), "it has", "NVIDIA H200")
    refused(command("roofline", trace, "--device=abacus", "--precision=fp32"), "no ceiling of abacus", "--roof=vendor")


def test_two_traces_are_compared_without_a_verdict(command, trace):
    lines = json.loads(command("compare", trace, trace, "--json").stdout)
    assert [(line["name"], line["change"], line["before_ns"]) for line in lines] == [("sgemm_128x64", "same", 33_125)]
    scopes = json.loads(command("compare", trace, trace, "--level=scope", "--json").stdout)
    assert [line["scope"] for line in scopes] == ["attn"]
    assert "no verdict" in command("compare", trace, trace).stdout
    refused(command("compare", trace), "give two")
    refused(command("compare", trace, trace, "--fail-on=slower"), "leave --fail-on out")


def test_as_many_rows_of_two_traces_are_printed_as_are_asked_for(command, tmp_path, trace):
    (tmp_path / "other.json").write_bytes(profiles.torch_json().replace(b"sgemm_128x64", b"hgemm_128x64"))
    for top, number in ((), 2), (("--top=1",), 1):
        assert len(json.loads(command("compare", trace, "other.json", "--json", *top).stdout)) == number
        assert command("compare", trace, "other.json", *top).stdout.count("gemm_128x64") == number


def test_a_report_of_traces_has_their_tables_and_their_doubts(command, tmp_path, trace):
    pytest.importorskip("jinja2")
    assert command("report", trace, "-o", "one.html").returncode == 0
    page = (tmp_path / "one.html").read_text()
    for text in ("By category", "sgemm_128x64", "aten::mm", "attn", "2 steps; wall"):
        assert text in page
    for text in ("longest kernel", "largest category", "1 category"):
        assert text in page
    long = f"{'a' * 100}_{'b' * 100}"
    (tmp_path / "long.json").write_bytes(profiles.torch_json().replace(b"sgemm_128x64", long.encode()))
    assert command("report", "long.json", "-o", "long.html").returncode == 0
    page = (tmp_path / "long.html").read_text()
    assert f'<td title="{long}">' in page
    assert f">{long}<" not in page
    (tmp_path / "cut.json").write_bytes(profiles.torch_json()[:-200])
    assert command("report", trace, "cut.json", "-o", "two.html").returncode == 0
    page = (tmp_path / "two.html").read_text()
    assert "What differs" in page
    assert "second against first" in page
    assert "cut short" in page
    refused(command("report", trace, "--by=framework", "-o", "x.html"), "leave --by")


@pytest.mark.parametrize(
    "name_of", ["roofline", "report", "compare", "profile kernels", "profile import", "profile scopes"]
)
def test_a_folder_a_database_or_a_text_gets_one_line_that_helps(command, tmp_path, trace, name_of):
    (tmp_path / "folder/deep").mkdir(parents=True)
    (tmp_path / "folder/deep/t.json").write_bytes(profiles.torch_json())
    (tmp_path / "notes.txt").write_text("Überraschung: this is no trace.\n" * 100)
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        database.execute("CREATE TABLE mine (name)")
    database.close()
    refused(command(*name_of.split(), "folder"), "such as folder/deep/t.json")
    refused(command(*name_of.split(), "x.sqlite"), "an SQLite database", "trace")
    refused(command(*name_of.split(), "notes.txt"), "a text file", "trace")


@pytest.mark.parametrize("name_of", ["roofline", "report", "compare"])
def test_traces_and_records_are_not_mixed(command, tmp_path, trace, name_of):
    (tmp_path / "record.json").write_text("{}")
    refused(command(name_of, trace, "record.json"), "either traces or records")
