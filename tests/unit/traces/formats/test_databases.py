"""Reports of Nsight Systems and profiles of rocprofv3, made as their documented schemas say; all times by hand."""

import gzip
import sqlite3
from contextlib import closing

import pytest

from benchmarker.api.errors import UserError
from benchmarker.traces.ingest import ingest

THREAD = 5 << 24 | 77
PROCESS = 5 << 24
LAUNCH = "8, 1, 1, 256, 1, 1, 32, 1024, 512"
NSYS = f"""
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'void gemm<float>(int)'), (2, 'cudaLaunchKernel_v7000'), (3, 'cudaMemcpyAsync_v3020'),
  (4, 'layer'), (5, 'python'), (6, 'aten::mm, op_id = 3, seq = 9');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT,
  correlationId INT, globalPid INT, demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT,
  blockX INT, blockY INT, blockZ INT, registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
  (2000, 2500, 1, 1, 7, 11, {PROCESS}, 1, 1, {LAUNCH}), (2600, 2900, 1, 1, 7, 12, {PROCESS}, 1, 1, {LAUNCH});
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
  globalPid INT, bytes INT, copyKind INT);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (3000, 3100, 1, 7, 13, {PROCESS}, 4096, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, eventClass INT, globalTid INT, correlationId INT,
  nameId INT);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
  (1200, 1250, 0, {THREAD}, 11, 2), (1300, 1350, 0, {THREAD}, 12, 2), (1400, 1500, 0, {THREAD}, 13, 3);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (3000, 3100), (3100, 3200);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
INSERT INTO NVTX_EVENTS VALUES (1000, 1600, 59, NULL, 4, {THREAD}), (1100, 1280, 59, NULL, 6, {THREAD}),
  (1100, NULL, 34, 'a mark', NULL, {THREAD});
CREATE TABLE ThreadNames (nameId INT, globalTid INT);
INSERT INTO ThreadNames VALUES (5, {THREAD});
"""
UUID = "_0000"
ROCPD = f"""
CREATE TABLE rocpd_string{UUID} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
INSERT INTO rocpd_string{UUID} VALUES (1, '', 'hipLaunchKernel'), (2, '', 'HIP_RUNTIME_API_EXT'),
  (3, '', 'MARKER_CORE_RANGE_API'), (4, '', 'roctxThreadRangeA'), (5, '', 'MEMORY_COPY_HOST_TO_DEVICE'),
  (6, '', 'hipMemcpyAsync');
CREATE TABLE rocpd_info_agent{UUID} (id INTEGER, type TEXT, absolute_index INT, logical_index INT, type_index INT);
INSERT INTO rocpd_info_agent{UUID} VALUES (1, 'CPU', 0, 0, 0), (2, 'GPU', 1, 1, 0);
CREATE TABLE rocpd_info_thread{UUID} (id INTEGER, pid INT, tid INT, name TEXT);
INSERT INTO rocpd_info_thread{UUID} VALUES (1, 1, 4711, NULL);
CREATE TABLE rocpd_info_kernel_symbol{UUID} (id INTEGER, kernel_name TEXT, display_name TEXT, arch_vgpr_count INT);
INSERT INTO rocpd_info_kernel_symbol{UUID} VALUES (1, 'Cijk_a.kd', 'Cijk_a', 128),
  (2, '__amd_rocclr_fillBufferAligned.kd', '__amd_rocclr_fillBufferAligned', 16);
CREATE TABLE rocpd_event{UUID} (id INTEGER, category_id INT, stack_id INT, parent_stack_id INT, correlation_id INT);
INSERT INTO rocpd_event{UUID} VALUES (1, 2, 21, 0, 0), (2, NULL, 21, 0, 0), (3, 3, 20, 0, 0), (4, NULL, 22, 0, 0),
  (5, 2, 22, 0, 0), (6, 2, 23, 0, 0), (7, NULL, 23, 0, 0);
CREATE TABLE rocpd_region{UUID} (id INTEGER, tid INT, start BIGINT, end BIGINT, name_id INT, event_id INT,
  extdata TEXT);
INSERT INTO rocpd_region{UUID} VALUES (1, 1, 1100, 1150, 1, 1, '{{}}'),
  (2, 1, 1000, 1900, 4, 3, '{{"message":"layer"}}'),
  (3, 1, 1200, 1250, 1, 5, '{{}}'), (4, 1, 1300, 1350, 6, 6, '{{}}');
CREATE TABLE rocpd_kernel_dispatch{UUID} (id INTEGER, tid INT, agent_id INT, kernel_id INT, queue_id INT, stream_id INT,
  start BIGINT, end BIGINT, event_id INT, workgroup_size_x INT, workgroup_size_y INT, workgroup_size_z INT,
  grid_size_x INT, grid_size_y INT, grid_size_z INT, group_segment_size INT);
INSERT INTO rocpd_kernel_dispatch{UUID} VALUES (1, 1, 2, 1, 1, 3, 2000, 2400, 2, 256, 1, 1, 1000, 2, 1, 4096),
  (2, 1, 2, 2, 1, 3, 2500, 2510, 4, 64, 1, 1, 64, 1, 1, 0);
CREATE TABLE rocpd_memory_copy{UUID} (id INTEGER, tid INT, start BIGINT, end BIGINT, name_id INT, dst_agent_id INT,
  src_agent_id INT, size INT, queue_id INT, stream_id INT, event_id INT);
INSERT INTO rocpd_memory_copy{UUID} VALUES (1, 1, 2600, 2700, 5, 2, 1, 512, NULL, NULL, 7);
"""
KERNELS = """"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",\
"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Vgpr_Count",\
"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 2",1,0,70,1,33,"Cijk_a",21,2000,2400,4096,128,256,1,1,1000,2,1
"KERNEL_DISPATCH","Agent 2",1,0,70,2,34,"__amd_rocclr_fillBufferAligned",22,2500,2510,0,16,64,1,1,64,1,1
"""
CALLS = """"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"HIP_RUNTIME_API","hipLaunchKernel",70,70,21,1100,1150
"HIP_RUNTIME_API","hipMemsetAsync",70,70,22,1200,1250
"""
MARKERS = """"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MARKER_CORE_API","layer",70,70,1,1000,1900
"""


def database(path, script):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def rows(found, kind):
    chosen = found.events[found.events["kind"] == kind]
    return [tuple(row) for row in chosen[["name", "device", "track", "ts_ns", "dur_ns"]].itertuples(index=False)]


def test_a_report_of_nsight_systems_has_kernels_copies_calls_and_ranges(tmp_path):
    found = ingest(database(tmp_path / "report.sqlite", NSYS))
    assert found.trace.format == "nsys"
    assert rows(found, "kernel") == [
        ("void gemm<float>(int)", "gpu:1", "stream 7", 2000, 500),
        ("void gemm<float>(int)", "gpu:1", "stream 7", 2600, 300),
    ]
    assert rows(found, "copy") == [("Memcpy HtoD", "gpu:1", "stream 7", 3000, 100)]
    assert rows(found, "runtime")[0] == ("cudaLaunchKernel", "cpu", "python 77", 1200, 50)
    assert rows(found, "scope") == [("layer", "cpu", "python 77", 1000, 600)]
    assert rows(found, "op") == [("aten::mm", "cpu", "python 77", 1100, 180)]
    assert (found.trace.busy_ns, found.trace.wall_ns, found.trace.unlaunched) == (900, 1100, 0)
    assert found.trace.notes[0] == "events left out: 2 synchronisation"


def test_kernels_of_a_report_have_the_ops_and_ranges_around_their_launch(tmp_path):
    found = ingest(database(tmp_path / "report.sqlite", NSYS))
    work = found.events[found.events["kind"].isin(["kernel", "copy"])]
    assert list(work["op"]) == ["aten::mm", "", ""]
    assert list(work["launch"]) == ["grid=8,1,1 block=256,1,1 registers=32 shared=1536"] * 2 + [""]
    assert list(work["leaf"]) == ["layer"] * 3
    assert list(work["category"]) == ["gemm", "gemm", "memory"]
    assert work["bytes"].iloc[2] == 4096
    assert found.trace.framework == "torch"
    assert work["phase"].iloc[0] == "forward"


def test_processes_of_a_report_count_their_correlations_apart(tmp_path):
    other = 6 << 24
    both = NSYS + f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (4000, 4100, 0, 1, 7, 11, {other}, 1, 1, {LAUNCH});"
    found = ingest(database(tmp_path / "report.sqlite", both))
    assert found.trace.unlaunched == 1


def test_graphs_that_were_recorded_whole_are_told_with_the_remedy(tmp_path):
    script = f"""{NSYS}
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
      globalPid INT, graphId INT);
    INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (5000, 6000, 1, 7, 99, {PROCESS}, 4);"""
    found = ingest(database(tmp_path / "report.sqlite", script))
    assert ("graph 4", "gpu:1", "stream 7", 5000, 1000) in rows(found, "kernel")
    assert "1 graph was recorded as a whole: profile with --cuda-graph-trace=node" in found.trace.missing


def test_a_report_that_lacks_tables_and_columns_is_read(tmp_path):
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    script = f"CREATE TABLE {table} (start INT, end INT); INSERT INTO {table} VALUES (1, 5)"
    found = ingest(database(tmp_path / "report.sqlite", script))
    assert rows(found, "kernel") == [("(no name)", "gpu:?", "stream ?", 1, 4)]


def test_values_that_are_no_times_are_counted(tmp_path):
    bad = f"""{NSYS} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', 5, 1, 1, 7, 1, 0, 1, 1, {LAUNCH}),
      (9, 2, 1, 1, 7, 1, 0, 1, 1, {LAUNCH});"""
    found = ingest(database(tmp_path / "report.sqlite", bad))
    assert "2 events have no valid time" in found.trace.missing
    assert found.trace.busy_ns == 900


def test_a_database_of_rocprofv3_has_kernels_copies_calls_and_markers(tmp_path):
    found = ingest(database(tmp_path / "1_results.db", ROCPD))
    assert found.trace.format == "rocprof"
    assert rows(found, "kernel") == [("Cijk_a", "gpu:0", "stream 3", 2000, 400)]
    assert rows(found, "copy") == [
        ("__amd_rocclr_fillBufferAligned", "gpu:0", "stream 3", 2500, 10),
        ("MEMORY_COPY_HOST_TO_DEVICE", "gpu:0", "stream ?", 2600, 100),
    ]
    assert rows(found, "scope") == [("layer", "cpu", "thread 4711", 1000, 900)]
    work = found.events[found.events["kind"].isin(["kernel", "copy"])]
    assert list(work["leaf"]) == ["layer"] * 3
    assert (found.trace.busy_ns, found.trace.unlaunched) == (510, 0)
    assert work["launch"].iloc[0] == "grid=4,2,1 block=256,1,1 registers=128 shared=4096"


def test_files_of_rocprofv3_are_read_with_those_beside_them(tmp_path):
    (tmp_path / "70_kernel_trace.csv").write_text(KERNELS)
    alone = ingest(tmp_path / "70_kernel_trace.csv")
    assert rows(alone, "kernel") == [("Cijk_a", "gpu:2", "stream 0", 2000, 400)]
    assert alone.trace.unlaunched == 2
    assert alone.events["launch"].iloc[0] == "grid=4,2,1 block=256,1,1 registers=128 shared=4096"
    (tmp_path / "70_hip_api_trace.csv").write_text(CALLS)
    (tmp_path / "70_marker_api_trace.csv").write_text(MARKERS)
    found = ingest(tmp_path / "70_kernel_trace.csv")
    assert found.trace.unlaunched == 0
    assert found.trace.notes[0] == "read with it: 70_hip_api_trace.csv, 70_marker_api_trace.csv"
    assert set(found.events.loc[found.events["kind"] == "kernel", "leaf"]) == {"layer"}
    assert [name for name, *_ in rows(found, "copy")] == ["__amd_rocclr_fillBufferAligned"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"SQLite format 3\0" + b"x" * 200, "the database cannot be read"),
        (KERNELS.replace('"Correlation_Id",', "").encode(), "not a file of rocprofv3"),
    ],
)
def test_damaged_files_are_told_in_one_line(tmp_path, content, text):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match=text):
        ingest(tmp_path / "file")


def test_other_databases_and_compressed_ones_are_refused_with_the_remedy(tmp_path):
    other = database(tmp_path / "x.db", "CREATE TABLE a (b)")
    with pytest.raises(UserError, match=r"of neither Nsight Systems \(nsys export --type=sqlite\) nor rocprofv3"):
        ingest(other)
    (tmp_path / "x.gz").write_bytes(gzip.compress(other.read_bytes()))
    with pytest.raises(UserError, match="is it compressed or damaged"):
        ingest(tmp_path / "x.gz")


def test_the_json_of_rocprofv3_is_refused_with_its_name_and_what_is_read(tmp_path, cli):
    (tmp_path / "7_results.json").write_text('{"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}}]}')
    for command in (["profile", "kernels"], ["profile", "import"], ["report"]):
        done = cli(*command, "7_results.json")
        assert done.returncode == 2
        assert "7_results.json: rocprofv3's own JSON, which is not read; run rocprofv3 with --output" in done.stderr


def test_each_copy_of_a_report_keeps_its_bytes(tmp_path):
    """They are of no instruction, so that the copy that takes longest does not do the work of the others."""
    more = f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (4000, 4900, 1, 7, 14, {PROCESS}, 512, 2);"
    found = ingest(database(tmp_path / "report.sqlite", NSYS + more))
    assert found.events.set_index("name")["bytes"].dropna().to_dict() == {"Memcpy HtoD": 4096, "Memcpy DtoH": 512}


def test_a_report_that_was_not_exported_is_told_how(tmp_path):
    (tmp_path / "run.nsys-rep").write_bytes(b"\x01binary\x00" * 9)
    with pytest.raises(UserError, match=r"export it first: nsys export --type=sqlite .*run\.nsys-rep"):
        ingest(tmp_path / "run.nsys-rep")


def test_the_commands_take_a_database_and_import_it(tmp_path, cli):
    database(tmp_path / "report.sqlite", NSYS)
    assert "void gemm<float>(int)" in cli("profile", "kernels", "report.sqlite").stdout
    done = cli("profile", "import", "report.sqlite")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.events.parquet").exists()
