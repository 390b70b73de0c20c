"""Chrome's JSON: kinds, names, times and places of rows, worked out by hand."""

import json

import pytest

from benchmarker.traces.formats import chrome
from benchmarker.traces.ingest import ingest
from benchmarker.traces.statistics import work

EPOCH_US = 1_763_000_000_000_000


def read(*events, **beside):
    content = json.dumps({**beside, "traceEvents": list(events)}).encode()
    return chrome.read(iter([content]))


def op(name="aten::mm", **fields):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1, **fields}


def kinds(reading) -> dict[str, str]:
    return dict(zip(reading.events["name"], reading.events["kind"], strict=True))


def test_categories_say_what_an_event_is():
    categories = {
        "cpu_op": "op",
        "Operator": "op",
        "user_annotation": "scope",
        "kernel": "kernel",
        "Kernel": "kernel",
        "gpu_memcpy": "copy",
        "gpu_memset": "copy",
        "Memcpy": "copy",
        "cuda_runtime": "runtime",
        "cuda_driver": "runtime",
        "hip_runtime": "runtime",
        "xpu_driver": "runtime",
        "Runtime": "runtime",
    }
    left_out = ["python_function", "gpu_user_annotation", "Trace", "overhead", "ac2g", "fwdbwd"]
    found = read(*(op(each, cat=each) for each in (*categories, *left_out)))
    assert kinds(found) == categories
    (note,) = found.notes
    assert sorted(note.removeprefix("events left out: ").split(", ")) == sorted(
        f"1 {each.lower()}" for each in left_out
    )
    assert found.lost == ()


def test_annotations_are_scopes_steps_or_collectives():
    found = read(
        op("attn", cat="user_annotation"),
        op("ProfilerStep#7", cat="user_annotation"),
        op("nccl:all_reduce", cat="user_annotation"),
        op("nn.Module: Linear_0", cat="python_function"),
        op("torch/nn/functional.py(12): f", cat="python_function"),
    )
    assert kinds(found) == {"attn": "scope", "ProfilerStep#7": "step", "nccl:all_reduce": "op", "Linear_0": "scope"}
    assert found.events["step"].tolist() == [-1, 7, -1, -1]


@pytest.mark.parametrize(
    ("ts", "dur", "begin_ns", "length_ns"),
    [
        ("0", "0", 0, 0),
        ("1", "2", 1000, 2000),
        ("0.001", "0.999", 1, 999),
        ("12345678.901", "0.25", 12_345_678_901, 250),
        ("4398046511103.999", "1.001", 4_398_046_511_103_999, 1001),
        ("8796093022207.999", "0.001", 8_796_093_022_207_999, 1),
        ("8796093022208.001", "0.001", 8_796_093_022_208_001, 1),
        (f"{EPOCH_US}.001", "3.456", EPOCH_US * 1000 + 1, 3456),
        (f"{EPOCH_US}.999", "9007199254.741", EPOCH_US * 1000 + 999, 9_007_199_254_741),
        (f"{EPOCH_US}", "1", EPOCH_US * 1000, 1000),
        ("1.763000000000000123e15", "1e3", EPOCH_US * 1000 + 123, 1_000_000),
        (f'"{EPOCH_US}.007"', '"12.5"', EPOCH_US * 1000 + 7, 12_500),
        ("1.0006", "0.0006", 1001, 1),
        (f"{EPOCH_US}.0006", "0.0006", EPOCH_US * 1000 + 1, 1),
    ],
)
def test_times_are_exact_to_the_nanosecond(ts, dur, begin_ns, length_ns):
    text = f'{{"ph":"X","cat":"cpu_op","name":"f","ts":{ts},"dur":{dur}}}'
    for others in ("", f',{{"ph":"X","cat":"cpu_op","name":"g","ts":{EPOCH_US}.5,"dur":1}}', ',{"ph":"X","ts":"x"}'):
        found = chrome.read(iter([f"[{text}{others}]".encode()]))
        assert found.events["ts_ns"].iloc[0] == begin_ns
        assert found.events["dur_ns"].iloc[0] == length_ns


@pytest.mark.parametrize(
    "time", ["-1", "1e400", "null", "true", "[1]", "{}", '"x"', '"nan"', '"inf"', "1e300", '""', "9" * 400]
)
@pytest.mark.parametrize("name", ["ts", "dur"])
def test_what_is_no_time_is_counted(name, time):
    fields = {"ts": "5", "dur": "6", name: time}
    odd = f'{{"ph":"X","ts":{fields["ts"]},"dur":{fields["dur"]}}}'
    good = '{"ph":"X","ts":7,"dur":8}'
    found = chrome.read(iter([f"[{odd},{good},{odd}]".encode()]))
    assert found.events["ts_ns"].tolist() == [7000]
    told = {"2 events have no valid time", "2 events could not be read"}
    assert len(found.lost) == 1
    assert found.lost[0] in told


def test_begins_and_ends_are_made_whole_by_thread():
    def b(name, ts, tid=1):
        return {"ph": "B", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}

    def e(ts, tid=1):
        return {"ph": "E", "pid": 1, "tid": tid, "ts": ts}

    found = read(b("a", 1.001), b("b", 2), b("c", 2.5, 2), e(3.25), e(7, 2), e(EPOCH_US + 0.5), e(9), b("open", 1, 3))
    rows = found.events[["name", "ts_ns", "dur_ns", "track"]].to_numpy().tolist()
    assert rows == [
        ["b", 2000, 1250, "thread 1"],
        ["c", 2500, 4500, "thread 2"],
        ["a", 1001, EPOCH_US * 1000 + 500 - 1001, "thread 1"],
    ]
    assert found.lost == ("2 begin or end events have no counterpart",)


def test_an_end_in_another_piece_and_one_before_its_begin(monkeypatch):
    begin = '{"ph":"B","cat":"cpu_op","name":"f","ts":8796093022207.5},'
    end = f'{{"ph":"E","ts":{EPOCH_US}.001}},{{"ph":"B","ts":5}},{{"ph":"E","ts":4}}'
    content = f"[{begin}{end}]".encode()
    found = chrome.read(iter([content[:80], content[80:]]))
    assert found.events["dur_ns"].tolist() == [EPOCH_US * 1000 + 1 - 8_796_093_022_207_500]
    assert found.lost == ("1 event has no valid time",)


def test_threads_and_processes_keep_apart():
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        *({"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": "worker"}} for tid in (1, 2)),
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "main"}},
    ]
    found = read(*(op(tid=tid) for tid in (1, 2, 3, 4, "5")), *names)
    assert found.events["track"].tolist() == ["worker 1", "worker 2", "main", "thread 4", "thread 5"]
    found = read(*(op(pid=pid, tid=tid) for pid, tid in ((1, 3), (2, 3), ("a\0b", "c"), ("a", "b\0c"))), *names)
    assert found.events["track"].tolist() == [
        "process 1 main",
        "process 2 thread 3",
        "process a\0b thread c",
        "process a thread b\0c",
    ]


def test_arguments_are_numbers_or_nothing():
    values = {
        5: 5,
        "6": 6,
        "-7": -7,
        8.0: 8,
        8.5: -1,
        True: -1,
        "x": -1,
        (1 << 64) - 3: -3,
        1 << 64: -1,
        -(1 << 63): -(1 << 63),
    }
    found = read(*(op(args={"External id": each, "correlation_id": each}) for each in values), op(), op(args={}))
    assert found.events["external_id"].tolist() == [*values.values(), -1, -1]
    assert found.events["correlation"].tolist() == [*values.values(), -1, -1]
    assert read(op(args={"External id": 1 << 62}), op()).events["external_id"].tolist() == [1 << 62, -1]


def test_costs_are_by_shape():
    shapes = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    found = read(op(args=shapes), op(args={"Input Dims": "x"}), op(args={"Input Dims": {}, "Input type": 5}), op())
    # 2·2·3·4 FLOPs; (2·3 + 3·4 + 2·4) numbers of 4 bytes
    assert found.events["flops"].iloc[0] == 48
    assert found.events["bytes"].iloc[0] == 104
    assert found.events["flops"].isna().tolist() == [False, True, True, True]


JAX = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "Stream #13(Kernel)"}},
    {"ph": "M", "pid": 1, "tid": 4, "name": "thread_name", "args": {"name": "XLA Ops"}},
    {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
    {"ph": "M", "pid": 7, "tid": 9, "name": "thread_name", "args": {"name": "python"}},
    {
        "ph": "X",
        "pid": 1,
        "tid": 3,
        "ts": 5,
        "dur": 2,
        "name": "gemm",
        "args": {"hlo_op": "dot.1", "correlation_id": "4"},
    },
    {"ph": "X", "pid": 1, "tid": 3, "ts": 8, "dur": 1, "name": "MemcpyD2H", "args": {"name": "jit(f)/a/b"}},
    {"ph": "X", "pid": 1, "tid": 4, "ts": 5, "dur": 2, "name": "dot.1", "args": {"hlo_op": "dot.1"}},
    {"ph": "X", "pid": 7, "tid": 9, "ts": 1, "dur": 2, "name": "cuLaunch", "args": {"correlation_id": "4"}},
    {"ph": "X", "pid": 7, "tid": 9, "ts": 1, "dur": 20, "name": "train", "args": {"step_num": "3"}},
    {},
]


def test_the_file_of_jax_viewer():
    found = read(*JAX)
    assert found.framework == "jax"
    rows = found.events[["name", "kind", "op", "device", "track", "step", "correlation", "scope"]].to_numpy().tolist()
    assert rows == [
        ["gemm", "kernel", "dot.1", "gpu:0", "stream 13", -1, 4, ""],
        ["MemcpyD2H", "copy", "", "gpu:0", "stream 13", -1, -1, "jit(f)/a/b"],
        ["cuLaunch", "runtime", "", "cpu", "process 7 python", -1, 4, ""],
        ["train", "step", "", "cpu", "process 7 python", 3, -1, ""],
    ]
    assert found.lost == ()
    assert found.notes == ("events left out: 1 (no category)",)


def test_on_a_cpu_the_ops_of_jax_are_those_with_an_instruction():
    found = read(
        {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
        op("dot.1", cat="", args={"hlo_op": "dot.1", "run_id": "-5"}),
        op("dot.1", cat="", args={"hlo_op": "dot.1", "run_id": "-9"}),
        op("dot.1", cat="", args={"hlo_op": "dot.1", "run_id": "-5"}),
        op("other", cat=""),
    )
    assert found.events["kind"].tolist() == ["op", "op", "op", "runtime"]
    assert found.events["run"].tolist() == [1, 0, 1, -1]


def test_a_file_of_jax_that_has_reached_its_limit_says_so(monkeypatch):
    assert chrome.JAX_LIMIT == 1_000_000
    monkeypatch.setattr(chrome, "JAX_LIMIT", len(JAX))
    assert read(*JAX).lost == (f"JAX's viewer file ends at {len(JAX):,} events: use the .xplane.pb in the same folder",)
    assert read(*JAX[:-1]).lost == ()
    assert read(*[op()] * 20, schemaVersion=1).lost == ()


@pytest.mark.slow
def test_a_million_events_of_jax_are_told(tmp_path):
    one = ',{"ph":"X","pid":7,"tid":9,"ts":1,"dur":2,"name":"f","args":{"hlo_op":"dot.1"}}'
    head = '{"traceEvents":[{"ph":"M","pid":7,"name":"process_name","args":{"name":"/host:CPU"}}'
    (tmp_path / "t.json").write_text(head + one * 999_999 + "]}")
    trace = ingest(tmp_path / "t.json").trace
    assert trace.rows == 999_999
    assert "JAX's viewer file ends at 1,000,000 events: use the .xplane.pb in the same folder" in trace.missing


def test_events_without_duration_are_passed_over_and_unknown_ones_told():
    others = [{"ph": each, "ts": 1} for each in "iICstfPNO"]
    found = read(op(), *others, {"ph": "b"}, {"ph": "n"}, {"ph": "e"}, {"ph": "Q"}, {"ph": 5}, {"name": "x"}, {})
    assert len(found.events) == 1
    assert found.lost == ("3 events have an unknown type",)
    assert found.notes == ("events left out: 3 asynchronous, 2 instant",)


def test_hostile_names_are_kept_as_they_are(tmp_path):
    names = ["'; DROP TABLE slice; --", "<script>", "\x00\x1b[31m\x9b\n", "\u202e", "", "n" * (1 << 20), "[bold]", "\\"]
    found = read(*(op(each) for each in names), op(["list"]), op(None), op(5))
    assert found.events["name"].tolist() == [*names, "['list']", "None", "5"]


def test_files_of_2021_have_steps_and_annotations_among_the_ops():
    found = read(
        op("ProfilerStep#2", cat="Operator"),
        op("Optimizer.step#SGD.step", cat="Operator"),
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", cat="Operator"),
        op("aten::mm", cat="Operator"),
    )
    assert list(kinds(found).values()) == ["step", "scope", "scope", "op"]
    assert found.events["step"].tolist() == [2, -1, -1, -1]


def test_an_empty_list_has_no_rows():
    found = read()
    assert len(found.events) == 0
    assert found.lost == ()


def test_memory_and_synchronisation_events_are_told_with_their_counts():
    memory = [{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at} for at in range(3)]
    synchronised = [op("Stream Sync", cat="cuda_sync")] * 2
    assert read(op(), *memory, *synchronised, schemaVersion=1).notes == ("events left out: 3 memory, 2 cuda_sync",)


def test_a_long_list_of_categories_is_cut():
    (note,) = read(op(), *(op(cat=f"c{at}" * 50) for at in range(20)), schemaVersion=1).notes
    assert note.endswith("and 8 more categories")
    assert len(note) < 1000


def test_what_mtia_executed_is_work():
    device = op("fc", cat="mtia_ccp_events", args={"device": 3})
    found = read(op(), device, schemaVersion=1)
    assert kinds(found)["fc"] == "kernel"
    assert found.events["device"].tolist() == ["cpu", "gpu:3"]
    assert kinds(read(op(), device, op("k", cat="kernel"), schemaVersion=1)) == {"aten::mm": "op", "k": "kernel"}


def rocprof(gpus: int) -> list[dict]:
    """A file of rocprof: two kernels and a copy, and the calls that launched them."""
    names = {1: "COPY", 2: "0 CPU HIP API", 3: "CPU HSA API", 0: "Markers and Ranges"}
    names |= {6 + gpu: f"{2 + gpu} GPU{gpu}" for gpu in range(gpus)}
    named = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    place = {"ph": "X", "dur": "5", "tid": 4}
    return [
        *named,
        {**place, "name": "hipLaunchKernel", "pid": 2, "ts": "1"},
        {**place, "name": "hsa_signal_wait", "pid": 3, "ts": "1"},
        {**place, "name": "Cijk_Ailk", "pid": 6, "ts": "10", "args": {"dev-id": "0", "queue-id": "0"}},
        {**place, "name": "FillBuffer", "pid": 5 + gpus, "ts": "20", "args": {"dev-id": "1"}},
        {**place, "name": "CopyHostToDevice", "pid": 1, "ts": "30", "args": {"dev-id": "1"}},
        {**place, "name": "step", "pid": 0, "ts": "0"},
    ]


def test_a_file_of_rocprof_has_kernels_and_copies_and_its_calls_are_no_work():
    found = read(*rocprof(2))
    rows = {row["name"]: (row["kind"], row["device"]) for row in found.events.to_dict("records")}
    assert rows == {
        "hipLaunchKernel": ("runtime", "cpu"),
        "hsa_signal_wait": ("runtime", "cpu"),
        "Cijk_Ailk": ("kernel", "gpu:0"),
        "FillBuffer": ("copy", "gpu:1"),
        "CopyHostToDevice": ("copy", "gpu:1"),
        "step": ("scope", "cpu"),
    }
    assert work(found.events)["name"].tolist() == ["Cijk_Ailk", "FillBuffer", "CopyHostToDevice"]
