"""`profile scopes` of several trials: a column for each configuration."""

import msgspec
import pytest
from support import profiles
from support.records import make_record

from benchmarker.cli.commands.profile import scopes
from benchmarker.cli.display import output
from benchmarker.files import atomic
from benchmarker.tables.shortening import factored
from benchmarker.traces.ingest import ingest
from benchmarker.traces.profile_files import encode


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
    for module in (scopes, output):
        monkeypatch.setattr(module, "width", lambda: 60)
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
