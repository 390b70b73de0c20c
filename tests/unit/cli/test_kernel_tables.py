"""Kernels and ops for print: `profile kernels --format`, and what two RESULTs refuse."""

import csv
import io
import json

import pytest
from support import profiles


@pytest.fixture
def trace(tmp_path):
    """Three kernels of 33.125 µs, of which two were launched alike, and a trace that ends before the profile does."""
    events = profiles.torch_events(3)
    kernels = [each for each in events if each.get("cat") == "kernel"]
    for grid, each in zip((8, 8, 16), kernels, strict=True):
        each["args"] |= {"grid": [grid, 1, 1], "block": [128, 1, 1]}
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    return "t.json"


def lines(text):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]


def test_kernels_are_printed_with_calls_times_grid_and_block(command, trace):
    headings, _, *rows = lines(command("profile", "kernels", trace, "--by=launch", "--format=markdown").stdout)
    times = ["total, µs", "mean, µs", "median, µs", "min, µs", "max, µs", "std, µs"]
    assert headings == ["name", "calls", "share, %", *times, "grid", "block"]
    alike = ["33.12"] * 4
    assert rows == [
        ["sgemm_128x64", "2", "66.7", "66.25", *alike, "0", "8,1,1", "128,1,1"],
        ["sgemm_128x64", "1", "33.3", "33.12", *alike, "0", "16,1,1", "128,1,1"],
    ]
    headings, _, row = lines(command("profile", "kernels", trace, "--format=markdown").stdout)
    assert (row[headings.index("grid")], row[headings.index("block")]) == ("2 different", "2 different")


def test_a_profile_without_launches_has_no_grid(command, tmp_path):
    (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space())
    assert "grid" not in command("profile", "kernels", "t.pb", "--format=markdown").stdout


def test_times_of_calls_share_a_unit_and_the_rest_is_told(command, tmp_path):
    (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space())
    text = command("profile", "ops", "t.pb", "--format=markdown", "--top=1").stdout
    headings, _, *rows = lines(text)
    assert len(rows) == 1
    assert {heading.partition(", ")[2] for heading in headings if ", " in heading} == {"%", "µs"}
    assert "- and 1 more, 33.3% of the busy time" in text
    assert "busy" in text.splitlines()[-2]


def test_the_file_and_the_title_lay_a_table_out_too(command, trace, tmp_path):
    done = command("profile", "kernels", trace, "-o", "kernels.tex", "--title=Kernels")
    assert (done.returncode, done.stdout) == (0, "")
    assert r"\caption{Kernels}" in (tmp_path / "kernels.tex").read_text()
    assert command("profile", "kernels", trace, "--title=Kernels").stdout.startswith("Kernels\n")


def test_csv_has_all_columns_whichever_option_asks_for_it(command, trace):
    plain = command("profile", "kernels", trace, "--csv").stdout
    assert command("profile", "kernels", trace, "--format=csv").stdout == plain
    (row,) = csv.DictReader(io.StringIO(plain))
    (same,) = json.loads(command("profile", "kernels", trace, "--json").stdout)
    assert float(row["std_ns"]) == same["std_ns"] == 0


@pytest.mark.parametrize("words", [["kernels"], ["ops"], ["scopes"]])
def test_two_results_are_sorted_by_their_difference_only(command, trace, words):
    sort = "inclusive" if words == ["scopes"] else "max"
    done = command("profile", *words, trace, trace, f"--sort={sort}")
    assert done.returncode == 2
    assert f"two RESULTs are sorted by their difference; leave --sort={sort} out" in done.stderr
    assert command("profile", *words, trace, trace).returncode == 0
    assert command("profile", *words, trace, f"--sort={sort}").returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["t.json", "t.json", "--format=latex"], "--format, --title and --output show one RESULT"),
        (["t.json", "--json", "--format=latex"], "exclude each other"),
        (["t.json", "--csv", "--title=x"], "exclude each other"),
        (["t.json", "-o", "t.pdf"], "its ending names no format"),
        (["t.json"] * 3, "3 RESULTs were given"),
    ],
)
def test_options_that_exclude_each_other_are_refused(command, trace, words, told):
    done = command("profile", "kernels", *words)
    assert done.returncode == 2
    assert told in done.stderr
