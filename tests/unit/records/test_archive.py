"""An archive: what is added is there once, whole and unchanged; what is damaged is named, and the rest is read."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.records import make_ceiling, make_record
from unit.bundles.test_bundle import RUN, make_run

from benchmarker.api.errors import UserError
from benchmarker.bundles.pack import bundle
from benchmarker.files.atomic import encode
from benchmarker.hooks import where
from benchmarker.library import archiving
from benchmarker.records import archive, archive_rows, archive_write, ceilings, store
from benchmarker.records.plan import make_plan

TIMES = (1.0, 1.1, 1.2)
CEILINGS = [make_ceiling(1e12), make_ceiling(1e11, "memory")]


def save_run(results: Path, number: int = 0, *, year: int = 2026, cases: int = 2, trials: int = 3) -> Path:
    """The folder of a run of several cases, with its plan and its ceilings."""
    run = f"{year}0302T030405.{number:06}-89abcdef"
    records = [
        make_record(
            TIMES,
            run=run,
            trial=trial,
            case={"params": {"ms": float(case)}},
            design={"case_number": case},
            started_at=f"{year}-03-02T03:04:05Z",
        )
        for case in range(cases)
        for trial in range(trials)
    ]
    folder = results / run
    folder.mkdir(parents=True)
    for record in records:
        (folder / f"{record.trial_id}.json").write_bytes(encode(record))
    plan = make_plan([records[case * trials].case for case in range(cases)], trials, seed=1)
    (folder / store.PLAN).write_bytes(encode(msgspec.structs.replace(plan, run_id=run)))
    (folder / store.CEILINGS).write_bytes(ceilings.encode(CEILINGS))
    return folder


def add(*results: Path, to: Path) -> tuple[int, int, list[str]]:
    """Add results: the number of trials added and there before, and the faults."""
    added = archiving.add(results, to)
    return added.trials, added.present, [str(fault) for fault in added.faults]


def parts(to: Path) -> list[Path]:
    return sorted(to.glob("trials/*/*.parquet"))


def ask(to: Path, statement: str) -> list[tuple[object, ...]]:
    (_, rows), faults = where.query([to], statement)
    assert faults == []
    return rows


@pytest.fixture
def to(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def run(tmp_path):
    return save_run(tmp_path / "results")


def test_records_are_read_as_from_their_folder(run, to):
    assert add(run, to=to) == (6, 0, [])
    assert store.read([to]) == store.read([run])
    assert [plan for _, plan in store.plans_of(to)] == [store.read_plan(run / store.PLAN)]
    assert list(ceilings.known([to]).known[-2:]) == CEILINGS


def test_the_content_of_each_file_is_kept(run, to):
    (run / "by-hand.json").write_bytes(msgspec.json.encode(make_record(run=run.name, trial=9)) + b"\n\n  ")
    add(run, to=to)
    files = sorted(path.read_bytes() for path in run.glob("*.json") if not store.is_beside(path.name))
    assert sorted(content for _, content in archive_rows.contents(to)[0]) == files


def test_adding_again_adds_nothing(run, to):
    add(run, to=to)
    before = parts(to)
    assert add(run, run.parent, to=to) == (0, 12, [])
    assert parts(to) == before
    assert len(store.read([to])[0]) == 6
    assert len(list(store.plans_of(to))) == 1


def test_another_record_of_the_same_trial_is_left_out(run, to):
    add(run, to=to)
    file = next(path for path in sorted(run.glob("2*.json")))
    file.write_bytes(file.read_bytes() + b"\n")
    trials, present, (fault,) = add(run, to=to)
    assert (trials, present) == (0, 5)
    assert fault == f"{file}: another record of trial {file.stem} is there already; left out"


def test_what_is_no_record_is_named_and_the_rest_added(run, to, tmp_path):
    (run / "half.json").write_bytes(b'{"schema_version": 1')
    record = make_record(run=run.name, trial=8, started_at="yesterday")
    (run / "when.json").write_bytes(encode(record))
    trials, _, faults = add(run, tmp_path / "nothing", to=to)
    assert trials == 6
    assert set(faults) == {
        f"{run}/half.json: Input data was truncated",
        f"{run}/when.json: started_at: 'yesterday' is no time in ISO 8601",
        f"{tmp_path}/nothing: no such file or folder",
    }


def test_a_bundle_is_verified_before(to, tmp_path):
    made = make_run(tmp_path / "mine")
    packed = tmp_path / "bid.zip"
    bundle(made, packed)
    trials, _, faults = add(packed, to=to)
    assert (trials, faults) == (len(store.read([made])[0]), [])
    assert {record.run_id for record in store.read([to])[0]} == {RUN}
    packed.write_bytes(packed.read_bytes()[:-40])
    trials, _, (fault,) = add(packed, to=tmp_path / "other")
    assert trials == 0
    assert fault.startswith(f"{packed}: ")


def test_an_archive_is_added_to_another(run, to, tmp_path):
    add(run, to=to)
    other = tmp_path / "other"
    assert add(to, to=other) == (6, 0, [])
    assert store.read([other]) == store.read([run])
    assert len(ceilings.known([other]).known) == len(ceilings.known([to]).known)


def test_a_large_part_is_read_a_few_whole_runs_at_a_time(to, tmp_path, monkeypatch):
    add(*[save_run(tmp_path / "results", number) for number in range(4)], to=to)
    (part,) = parts(to)
    half = (archive_rows.bytes_of(pq.read_metadata(part)) + 1) // 2
    monkeypatch.setattr(archive_rows, "MOST_BYTES", half)
    read = [contents for contents, _ in archive_rows.by_part(to)]
    runs = [Counter(json.loads(content)["run_id"] for _, content in contents) for contents in read]
    assert [list(each.values()) for each in runs] == [[6, 6], [6, 6]]  # two cases with three trials each
    assert sorted(each for contents in read for each in contents) == sorted(archive_rows.contents(to)[0])


def test_columns_state_what_the_record_states(run, to):
    add(run, to=to)
    names = (
        "trial_id, started_s, problem, framework, steps_per_block, step_time_median_s, flops, samples, factors ->> 'ms'"
    )
    record = store.read([run])[0][0]
    first = ask(to, f"SELECT {names} FROM trials ORDER BY trial_id")[0]
    # 2026-03-02T03:04:05 UTC: 20,514 days of 86,400 s since 1970, then 3 h 4 min 5 s
    assert first == (record.trial_id, 20514 * 86400 + 11045, "nap", "toy", 1, 1.1, 1000, 2, "0.0")
    assert ask(to, "SELECT count(DISTINCT case_id) FROM trials") == [(2,)]
    blocks = ask(to, f"SELECT block, duration_ns, step_time_s FROM blocks WHERE trial_id = '{record.trial_id}'")
    assert blocks == [(0, 10**9, 1.0), (1, 11 * 10**8, 1.1), (2, 12 * 10**8, 1.2)]
    digest = hashlib.sha256((run / f"{record.trial_id}.json").read_bytes()).hexdigest()
    assert ask(to, f"SELECT trial_id FROM records WHERE sha256 = '{digest}'") == [(record.trial_id,)]
    assert ask(to, "SELECT DISTINCT record ->> '$.machine.cpu.model' FROM records") == [(record.machine.cpu.model,)]


def test_profiles_are_tables(to, tmp_path):
    from benchmarker.records.profile import Kernel, Scope

    scope = Scope("attn", "forward", 2, 2, None, 30, 40, 20, 0.5, [10, 20])
    kernel = Kernel("k", "op", "gemm", "rule", "attn", "forward", 3, *[30] * 3, *[10.0] * 4, 10, 10, 0.0, 6e9, None)
    record = make_record(run="run", scopes=[scope], kernels=[kernel])
    (tmp_path / "one.json").write_bytes(encode(record))
    add(tmp_path / "one.json", to=to)
    assert ask(to, "SELECT scope, root_ns, expected, step_ns FROM scopes") == [("attn", 30, None, [10, 20])]
    assert ask(to, "SELECT name, busy_ns / count, flops, bytes FROM kernels") == [("k", 10.0, 6e9, None)]


def test_other_engines_read_the_files(run, to):
    add(run, save_run(run.parent, 1, year=2025), to=to)
    trials = ds.dataset(to / "trials", partitioning="hive")
    table = trials.to_table(["year", "step_time_median_s", "factors"], filter=ds.field("problem") == "nap")
    assert sorted(table["year"].to_pylist()) == [2025] * 6 + [2026] * 6
    assert set(table["step_time_median_s"].to_pylist()) == {1.1}
    assert {json.loads(factors)["ms"] for factors in table["factors"].to_pylist()} == {"0.0", "1.0"}


def test_only_what_fits_is_read(to, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_rows, "AT_ONCE", 2)
    monkeypatch.setattr(archive_write, "GROUP", 4)
    add(save_run(tmp_path / "results", cases=10, trials=4), to=to)
    groups = []
    whole = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda *a, **k: groups.append(k["row_groups"]) or whole(*a, **k)
    )
    records, faults = store.read([to], where.Conditions(["ms=7"]))
    assert (len(records), faults) == (4, [])
    assert {record.case.params["ms"] for record in records} == {7.0}
    assert [len(each) for each in groups] == [1]


@pytest.mark.parametrize("word", ["ms=1", "ms=1.0", "(factors ->> 'ms') = '1.0'", "trial_id LIKE '%-1'"])
def test_archives_and_folders_are_selected_alike(run, to, word):
    add(run, to=to)
    assert len(store.read([to], where.Conditions([word]))[0]) == 3
    (fitting,) = where.Conditions([word]).fitting([("", store.read([run])[0])])
    assert {record.case.params["ms"] for record in fitting} == {1.0}


def test_many_small_parts_become_one(to, tmp_path):
    runs = [save_run(tmp_path / "results", number, cases=1, trials=1) for number in range(archive_write.MANY)]
    for run in runs[:-1]:
        add(run, to=to)
    assert len(parts(to)) == archive_write.MANY - 1
    add(runs[-1], to=to)
    assert len(parts(to)) == 1
    assert store.read([to]) == store.read([tmp_path / "results"])
    assert len(list(store.plans_of(to))) == archive_write.MANY
    assert add(*runs, to=to) == (0, archive_write.MANY, [])
    assert [path.name for path in to.rglob(".*")] == []


def test_parts_are_merged_only_if_they_fit_into_memory_together(to, tmp_path, monkeypatch):
    runs = [save_run(tmp_path / "results", number, cases=1, trials=20) for number in range(archive_write.MANY)]
    most = sum(file.stat().st_size for run in runs for file in run.rglob("*.json")) // 2
    monkeypatch.setattr(archive_write, "MOST_BYTES", most)
    for run in runs:
        add(run, to=to)
    assert sum(part.stat().st_size for part in parts(to)) < most  # compressed, they would fit
    assert len(parts(to)) == archive_write.MANY


def test_a_merge_that_was_cut_short_is_seen_once(to, tmp_path, monkeypatch):
    runs = [save_run(tmp_path / "results", number, cases=1, trials=1) for number in range(archive_write.MANY)]
    monkeypatch.setattr(archive_write, "_finish", lambda _note: None)
    for run in runs:
        add(run, to=to)
    assert len(parts(to)) == archive_write.MANY + 1
    assert store.read([to]) == store.read([tmp_path / "results"])
    assert ask(to, "SELECT count(*) FROM trials") == [(archive_write.MANY,)]
    monkeypatch.undo()
    assert add(*runs, to=to) == (0, archive_write.MANY, [])
    assert len(parts(to)) == 1


def test_what_a_killed_writer_left_is_swept(run, to):
    add(run, to=to)
    left = parts(to)[0].parent / ".x.parquet.abc.tmp"
    left.write_bytes(b"PAR1")
    note = archive.note_of(parts(to)[0].with_name("never-written.parquet"))
    note.write_bytes(msgspec.json.encode([parts(to)[0].name]))
    assert len(store.read([to])[0]) == 6
    assert add(run, to=to) == (0, 6, [])
    assert not left.exists()
    assert not note.exists()
    assert len(store.read([to])[0]) == 6


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_part_is_named_and_the_rest_is_read(run, to, how):
    add(run, to=to)
    (bad,) = parts(to)
    add(save_run(run.parent, 1, cases=1), to=to)
    content = bytearray(bad.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    else:
        group = pq.ParquetFile(bad).metadata.row_group(0)
        records = next(each for at in range(group.num_columns) if (each := group.column(at)).path_in_schema == "record")
        content[records.dictionary_page_offset + records.total_compressed_size // 3] ^= 1
    bad.write_bytes(content)
    records, (fault,) = store.read([to])
    assert len(records) == 3
    assert fault.path == bad
    assert fault.reason.startswith("damaged: ")
    (_, rows), (again,) = where.query([to], "SELECT count(record) FROM records")
    assert rows == [(3,)]
    assert again.path == bad
    if how == "flipped":  # it is still known which trials are in it
        assert add(run, to=to) == (0, 6, [])
        return
    with pytest.raises(UserError, match=r"damaged: .*nothing was added"):
        add(run, to=to)
    bad.unlink()
    assert add(run, to=to) == (6, 0, [])


def test_a_record_that_was_changed_in_the_archive_is_named(run, to):
    add(run, to=to)
    (part,) = parts(to)
    table = pq.read_table(part)
    changed = table.set_column(
        table.schema.get_field_index("record"),
        "record",
        [
            [
                text.replace('"seed":0', '"seed":1').replace('"seed": 0', '"seed": 1')
                for text in table["record"].to_pylist()
            ]
        ],
    )
    pq.write_table(changed, part)
    records, faults = store.read([to])
    assert records == []
    assert {fault.reason for fault in faults} == {"changed: its SHA-256 is not that of when it was added"}


def test_a_part_that_is_merged_while_it_is_read_is_found_where_it_is(run, to, tmp_path, monkeypatch):
    add(run, to=to)
    (part,) = parts(to)
    listed = archive.parts
    calls = []

    def stale(path, table):
        calls.append(table)
        return [part.with_name("gone.parquet")] if len(calls) == 1 else listed(path, table)

    monkeypatch.setattr(archive, "parts", stale)
    assert len(store.read([to])[0]) == 6
    assert len(calls) == 2


def test_an_archive_of_a_newer_version_is_refused(run, to):
    add(run, to=to)
    (to / archive.HEAD).write_text('{"archive_version": 2}')
    for reading in (lambda: store.read([to]), lambda: add(run, to=to), lambda: ask(to, "SELECT 1")):
        with pytest.raises(UserError, match=r"newer version of benchmarker \(version 2\); update this one"):
            reading()


def test_a_folder_of_something_else_is_no_archive(run, tmp_path):
    with pytest.raises(UserError, match="is no archive, and not empty"):
        add(run, to=run.parent)


def test_an_archive_among_results_is_skipped(run):
    add(run, to=run.parent / "archive")
    assert len(store.read([run.parent])[0]) == 6
    shutil.rmtree(run)
    assert store.read([run.parent])[1][0].reason == "contains no record"
