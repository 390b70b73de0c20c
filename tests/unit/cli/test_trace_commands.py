"""Commands that read profiles on good, damaged and hostile files, as a user meets them."""

import csv
import gzip
import io
import json
import os

import msgspec
import pytest
from support import profiles
from support.records import make_record

from benchmarker import load_events
from benchmarker.files import atomic
from benchmarker.formatting import clean, spreadsheet_text
from benchmarker.tables import terminal
from benchmarker.tables.shortening import factored
from benchmarker.traces.ingest import ingest
from benchmarker.traces.profile_files import encode

COMMANDS = ("import", "kernels", "ops", "scopes")
FORMULAS = ["=1+1", "+1", "-1", "@SUM(1)", "  =1"]
HOSTILE = [
    "'; DROP TABLE slice; --",
    "<script>alert(1)</script>",
    "\x1b[31mred\x07\x00",
    "line\nfeed\rreturn\ttab",
    "\x9b2J\u202e\u2028",
    "[bold red]markup[/]",
    '"quotes", and commas',
    *FORMULAS,
    "n" * 100_000,
]


def refused(done, *texts: str) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith("benchmarker: error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    for text in texts:
        assert text in done.stderr


@pytest.fixture
def hostile(tmp_path):
    events = [
        {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": 10 * at,
            "dur": 5 - at / 8,
            "pid": 1,
            "tid": name,
            "args": {"stream": name},
        }
        for at, name in enumerate(HOSTILE)
        for cat in ("cpu_op", "user_annotation", "kernel", name)
    ]
    (tmp_path / "hostile.json").write_text(json.dumps({"traceEvents": events}))
    return "hostile.json"


NO_TRACES = {
    "cut.xplane.pb": (profiles.small_cpu_space()[:-200], "cut short"),
    "cut.json.gz": (gzip.compress(profiles.torch_json(), mtime=0)[:40], "cut.json.gz"),
    "empty.pb": (b"", "an empty file"),
    "empty.json": (b"", "empty"),
    "notes.txt": (b"This is no trace.\nIt is text.\n", "not a trace"),
    "other.json": (b'{"some": ["json"]}', "other.json"),
    "none.json.gz": (gzip.compress(b'{"traceEvents": []}'), "it contains no kernel and no op"),
    "table.parquet": (b"PAR1", "not an event table"),
}


@pytest.mark.parametrize("name_of", COMMANDS)
@pytest.mark.parametrize("name", NO_TRACES)
def test_a_file_that_is_no_whole_trace_is_refused_in_one_line(command, tmp_path, name_of, name):
    content, text = NO_TRACES[name]
    (tmp_path / name).write_bytes(content)
    refused(command("profile", name_of, name), name, text)


@pytest.mark.parametrize("name_of", COMMANDS)
def test_results_without_a_trace(command, tmp_path, name_of):
    refused(command("profile", name_of, "nowhere.pb"), "nowhere.pb: No such file or directory")
    (tmp_path / "folder").mkdir()
    refused(command("profile", name_of, "folder"), "folder contains no record with a profile")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name_of", COMMANDS)
def test_a_file_that_may_not_be_read(command, tmp_path, name_of):
    (tmp_path / "trace.pb").write_bytes(profiles.small_cpu_space())
    (tmp_path / "trace.pb").chmod(0)
    refused(command("profile", name_of, "trace.pb"), "trace.pb: Permission denied")


@pytest.mark.parametrize("name_of", COMMANDS)
def test_a_trace_that_is_cut_within_its_events_is_shown_as_incomplete(command, tmp_path, name_of):
    content = profiles.torch_json()
    (tmp_path / "t.json").write_bytes(content[: content.rindex(b'"name"')])
    done = command("profile", name_of, "t.json")
    assert done.returncode == 0, done.stderr
    of = " of t.json" if name_of == "import" else ""
    assert f"INCOMPLETE profile{of}: the last" in done.stdout + done.stderr
    assert "cut short" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name_of", ["import", "kernels", "kernels --by=device", "kernels --by=op", "ops", "scopes"])
def test_hostile_names_steer_no_terminal(command, hostile, name_of):
    done = command("profile", *name_of.split(), hostile)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "Traceback" not in text
    assert max(map(len, text.splitlines())) < 2000
    if name_of in ("kernels", "ops"):
        for shown in (
            "'; DROP TABLE slice; --",
            "<script>",
            "\\x1b[31mred\\x07\\x00",
            "line\\x0afeed",
            "[bold red]markup[/]",
        ):
            assert shown in done.stdout
        assert "n" * 28 + "…" + "n" * 27 in done.stdout


@pytest.mark.parametrize("name_of", ["kernels", "ops", "scopes"])
@pytest.mark.parametrize("source", ["hostile", "cpu", "gpu"])
def test_json_and_csv_hold_the_same_numbers(command, tmp_path, hostile, name_of, source):
    if source != "hostile":
        (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space() if source == "cpu" else profiles.small_gpu_space())
    place = hostile if source == "hostile" else "t.pb"
    as_json, as_csv = command("profile", name_of, place, "--json"), command("profile", name_of, place, "--csv")
    assert (as_json.returncode, as_csv.returncode) == (0, 0)
    rows = json.loads(as_json.stdout)
    assert all(char.isprintable() or char == "\n" for char in as_json.stdout + as_csv.stdout)
    table = list(csv.DictReader(io.StringIO(as_csv.stdout, newline="")))
    assert len(rows) == len(table) > 0
    for row, line in zip(rows, table, strict=True):
        assert list(row) == list(line)
        for name, value in row.items():
            if isinstance(value, str):
                assert line[name] == spreadsheet_text(clean(value))
            elif value is None:
                assert line[name] == ""
            else:
                assert float(line[name]) == value


def test_text_in_csv_is_no_formula_and_numbers_stay_numbers(command, hostile):
    for name_of in ("kernels", "ops"):
        table = list(
            csv.DictReader(io.StringIO(command("profile", name_of, hostile, "--csv", "--top=0").stdout, newline=""))
        )
        names = {row.get("name", row.get("op")) for row in table}
        assert {f"'{text}" for text in FORMULAS} <= names
        assert not names & {*FORMULAS}
        assert all(int(row["count"]) > 0 for row in table)


def test_the_numbers_are_those_of_the_table(command, tmp_path):
    (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space())
    rows = {row["name"]: row for row in json.loads(command("profile", "kernels", "t.pb", "--json").stdout)}
    assert rows["dot.1"]["count"] == 2
    assert (rows["dot.1"]["total_ns"], rows["dot.1"]["self_ns"], rows["dot.1"]["busy_ns"]) == (8000, 8000, 8000)
    assert (rows["dot.1"]["flops"], rows["fusion.2"]["flops"]) == (96, None)
    scopes = {row["scope"]: row for row in json.loads(command("profile", "scopes", "t.pb", "--json").stdout)}
    assert (scopes["attn"]["root_ns"], scopes["attn"]["any_ns"], scopes["attn"]["pure_ns"]) == (8000, 12000, 8000)
    assert (scopes["mlp"]["root_ns"], scopes["mlp"]["any_ns"], scopes["mlp"]["pure_ns"]) == (4000, 4000, 0)
    made = json.loads(command("profile", "import", "t.pb", "--json").stdout)
    assert made[0]["trace"]["busy_ns"] == 12000
    again = {row["name"]: row for row in json.loads(command("profile", "kernels", made[0]["events"], "--json").stdout)}
    assert again == rows


def test_ingest_writes_where_it_is_told_or_says_why_not(command, tmp_path):
    (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space())
    done = command("profile", "import", "t.pb", "-o", "tables/deep")
    assert done.returncode == 0
    assert (tmp_path / "tables/deep/t.events.parquet").exists()
    (tmp_path / "file").write_text("x")
    refused(command("profile", "import", "t.pb", "-o", "file/below"), "cannot write", "name another folder with -o")


def test_a_process_of_its_own_shows_no_traceback(cli, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"\xff\x00 no trace")
    refused(cli("profile", "kernels", "notes.txt"), "notes.txt")


def test_files_that_would_become_one_table_are_refused(command, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.json").write_bytes(profiles.torch_json())
    refused(
        command("profile", "import", "a/t.json", "b/t.json", "-o", "out"),
        "would become out/t.events.parquet",
        "its own -o",
    )
    assert not (tmp_path / "out").exists()
    assert command("profile", "import", "a/t.json", "b/t.json").returncode == 0
    assert (tmp_path / "b/t.events.parquet").exists()


def test_a_file_that_cannot_be_read_does_not_keep_others_from_it(command, tmp_path):
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    done = command("profile", "import", "missing.json", "t.json")
    assert done.returncode == 2
    assert "missing.json: No such file" in done.stderr
    assert (tmp_path / "t.events.parquet").exists()


def test_ops_of_a_device_come_with_the_longest_first(command, tmp_path):
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    times = [row["device_ns"] for row in json.loads(command("profile", "ops", "t.json", "--json").stdout)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 0


def test_what_is_not_known_is_missing_in_pandas(tmp_path):
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    events = load_events(tmp_path / "t.json")
    hosts = events[events["kind"] != "kernel"]
    assert hosts["busy_ns"].isna().all()
    assert events["end_ns"].isna().all()
    assert not (events["op"] == "").any()


def test_causal_attention_says_how_its_flops_are_counted(command, tmp_path):
    events = profiles.torch_events(1)
    op = next(each for each in events if each.get("cat") == "cpu_op")
    op["name"] = "aten::_scaled_dot_product_flash_attention"
    op["args"] |= {
        "Input Dims": [[1, 2, 4, 8]] * 3,
        "Input type": ["float"] * 3,
        "Concrete Inputs": [""] * 4 + ["True"],
    }
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    flops = {}
    for way in ("half", "full"):
        shown = command("profile", "kernels", "t.json", "--json", f"--causal={way}")
        assert "note: FLOPs of causal attention count" in shown.stderr
        flops[way] = json.loads(shown.stdout)[0]["flops"]
    assert flops == {"half": 2 * 2 * 8 * 16, "full": 2 * 2 * 16 * 16}
    assert command("profile", "import", "t.json", "--causal=full").returncode == 0
    refused(
        command("profile", "ops", "t.events.parquet", "--causal=half"), "--causal=half", "import the profiler's file"
    )
    assert command("profile", "ops", "t.events.parquet").returncode == 0


PLACE = {"ph": "X", "pid": 1, "tid": 1}


def launched(number, kernel, op="aten::mm", stream=7, device=0, step=None):
    at = 100 * number
    ids = {"correlation": number, "device": device, "stream": stream}
    return [
        *(
            [{**PLACE, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 99}]
            * (step is not None)
        ),
        {**PLACE, "cat": "cpu_op", "name": op, "ts": at + 1, "dur": 20},
        {**PLACE, "cat": "cuda_runtime", "name": "launch", "ts": at + 2, "dur": 1, "args": {"correlation": number}},
        {
            "ph": "X",
            "pid": device,
            "tid": stream,
            "cat": "kernel",
            "name": kernel,
            "ts": at + 30,
            "dur": number,
            "args": ids,
        },
    ]


EVENTS = [
    *launched(1, "sgemm", step=0),
    *launched(2, "Memcpy DtoD", "aten::copy_", stream=8, step=1),
    *launched(3, "sgemm_bwd", "MmBackward0", device=1, step=2),
]
CHOICES = {
    "--name=GEMM": [1, 3],
    "--name=^sgemm$": [1],
    "--category=memory": [2],
    "--device=gpu:1": [3],
    "--stream=8": [2],
    "--stream=stream 7": [1, 3],
    "--step=1": [2],
    "--phase=backward": [3],
    "--phase=forward": [1, 2],
    "--phase=unknown": [],
    "--scope=(outside any)": [1, 2, 3],
    "--scope=layer": [],
}


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    return "t.json"


@pytest.mark.parametrize("choice", CHOICES)
def test_only_the_chosen_work_is_shown(command, trace, choice):
    rows = json.loads(command("profile", "kernels", trace, choice, "--json").stdout)
    assert sorted(row["busy_ns"] for row in rows) == [1000 * each for each in CHOICES[choice]]
    assert sum(row["share"] for row in rows) == pytest.approx(sum(CHOICES[choice]) / 6)  # of the whole profile
    shown = command("profile", "kernels", trace, choice)
    assert (shown.returncode, shown.stderr) == (0, "")
    if not CHOICES[choice]:
        assert "nothing in the profile matches" in shown.stdout
    scopes = json.loads(command("profile", "scopes", trace, choice, "--json").stdout)
    assert sum(row["root_ns"] for row in scopes) == 1000 * sum(CHOICES[choice])


def test_ops_are_chosen_by_their_own_names_and_by_what_they_launched(command, trace):
    def names(*options):
        return [row["op"] for row in json.loads(command("profile", "ops", trace, *options, "--json").stdout)]

    assert names("--name=copy") == ["aten::copy_"]
    assert names("--device=gpu:0") == ["aten::copy_", "aten::mm"]
    assert names("--category=embedding") == []


def test_filters_apply_to_both_of_two_results(command, trace):
    rows = json.loads(command("profile", "kernels", trace, trace, "--category=memory", "--json").stdout)
    assert [(row["name"], row["change"]) for row in rows] == [("Memcpy DtoD", "same")]


@pytest.mark.parametrize(
    ("option", "text"), [("--name=(", "not a regular expression"), ("--category=x", "gemm, convolution")]
)
def test_a_filter_that_cannot_be_is_refused_in_one_line(command, trace, option, text):
    done = command("profile", "kernels", trace, option)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert text in done.stderr


def store(folder, framework, trial, kernel_us):
    """A record of a trial whose only kernel, in scope `attn`, takes so long in each of two steps."""
    events = profiles.torch_events()
    for event in events:
        if event["cat"] == "kernel":
            event["dur"] = kernel_us
    trace = folder / "t.json"
    trace.write_bytes(profiles.torch_json(events))
    found = ingest(trace)
    trace.unlink()
    record = make_record(run=framework, trial=trial, case={"framework": framework})
    record = msgspec.structs.replace(
        record, trace=found.trace, scopes=found.scopes, kernels=found.kernels(), reasons=dict(record.reasons)
    )
    record.reasons.pop("trace", None)
    atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    (folder / f"{record.trial_id}.events.parquet").write_bytes(encode(found))


def test_each_configuration_has_a_column_with_medians_over_its_trials(tmp_path, cli):
    folder = tmp_path / "results"
    folder.mkdir()
    for trial, kernel_us in enumerate((30, 10, 50)):
        store(folder, "torch", trial, kernel_us)
    store(folder, "jax", 0, 20)
    shown = cli("profile", "scopes", "results")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split("  ") for line in shown.stdout.splitlines() if line.startswith(("scope", "attn"))]
    heading, attn = ([text.strip() for text in line if text.strip()] for line in lines)
    assert heading == ["scope", "phase", "jax", "torch (median of 3)"]
    assert attn == ["attn", "forward", "20 µs 100.0%", "30 µs 100.0%"]


def test_each_of_several_folders_has_columns_of_its_own(tmp_path, cli):
    for trial, (name, kernel_us) in enumerate((("old", 30), ("new", 10))):
        (tmp_path / name).mkdir()
        store(tmp_path / name, "torch", trial, kernel_us)
    shown = cli("profile", "scopes", "old", "new")
    lines = {line.split()[0]: line.split() for line in shown.stdout.splitlines() if line.startswith(("scope", "attn"))}
    assert lines == {
        "scope": ["scope", "phase", "old", "new"],
        "attn": ["attn", "forward", "30", "µs", "100.0%", "10", "µs", "100.0%"],
    }
    assert "median of 2" in cli("profile", "scopes", "old", "new", "--pool").stdout


def test_configurations_without_room_follow_in_a_further_table(tmp_path, cli, monkeypatch):
    folder = tmp_path / "results"
    folder.mkdir()
    for framework in ("jax", "torch", "one", "more"):
        store(folder, framework, 0, 20)
    monkeypatch.setattr(terminal, "width", lambda: 60)
    shown = cli("profile", "scopes", "results").stdout
    headings = [line.split()[2:] for line in shown.splitlines() if line.startswith("scope")]
    assert len(headings) == 2
    assert sorted([*headings[0], *headings[1]]) == ["jax", "more", "one", "torch"]
    assert shown.count("20 µs 100.0%") == 4


@pytest.mark.parametrize(
    ("names", "shared", "rests"),
    [
        (["GPT-2 B=1 d=64 jax", "GPT-2 B=1 d=128 torch"], "GPT-2 B=1", ["d=64 jax", "d=128 torch"]),
        (["GEMM 512", "GEMM 512 compiled"], "", ["GEMM 512", "GEMM 512 compiled"]),
        (["one"], "", ["one"]),
    ],
)
def test_what_names_share_is_told_once(names, shared, rests):
    assert factored(names) == (shared, rests)
