"""The table of matrix products: traces worked out by hand, and real ones recomputed from their JSON."""

import gzip
import json
from collections import Counter
from math import prod
from pathlib import Path

import pandas as pd
import pytest
from support import profiles

from benchmarker.traces import profile_files
from benchmarker.traces.ingest import ingest
from benchmarker.traces.statistics import describe, gemms, ops, work

SHARED = Path(__file__).parents[4] / "shared/traces"
BF16 = "c10::BFloat16"


def host(cat, name, ts, dur, **args):
    return {"ph": "X", "pid": 1, "tid": 1, "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, correlation, **args):
    own = {"correlation": correlation, "device": 0, "stream": 7}
    return {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": own | args}


def op(name, ts, dims, types, strides=None, dur=10):
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": [""] * len(dims)}
    return host("cpu_op", name, ts, dur, **args, **({"Input Strides": strides} if strides else {}))


def launch(ts, correlation):
    return host("cuda_runtime", "cudaLaunchKernel", ts, 1, correlation=correlation)


def read(folder, events):
    path = folder / "trace.json"
    path.write_bytes(profiles.torch_json(events))
    return ingest(path)


def linear(at, first):
    """A linear layer of 256 rows, 64 to 32, whose product takes 30 µs and a reduction of its split K another 10 µs."""
    types = [BF16, BF16, BF16, "Scalar", "Scalar"]
    return [
        op("aten::linear", at, [[2, 128, 64], [32, 64], [32]], [BF16] * 3, dur=20),
        op("aten::addmm", at + 1, [[32], [256, 64], [64, 32], [], []], types, [[1], [64, 1], [1, 64], [], []], dur=18),
        launch(at + 2, first),
        launch(at + 4, first + 1),
        kernel("nvjet_tst_128x64", at + 10, 30, first, grid=[4, 2, 1], block=[128, 1, 1]),
        kernel("splitKreduce_kernel", at + 40, 10, first + 1),
    ]


def test_a_product_with_a_sparse_matrix_has_neither_flops_nor_a_line(tmp_path):
    """PyTorch records its shape, as of a dense matrix, but no strides."""
    dims, types = [[64], [64, 64], [64], [], []], ["float", "float", "float", "Scalar", "Scalar"]
    dense = op("aten::addmv", 0, dims, types, [[1], [64, 1], [1], [], []])
    sparse = op("aten::addmv", 20, dims, types, [[1], [], [1], [], []])
    events = read(tmp_path, [dense, sparse]).events
    assert events["flops"].fillna(0).tolist() == [2 * 64 * 64, 0]
    table, _ = gemms(events)
    assert table["count"].tolist() == [1]


def test_one_line_for_each_product_with_the_time_of_whole_calls(tmp_path):
    attention = [
        op("aten::bmm", 400, [[8, 16, 64], [8, 64, 16]], [BF16] * 2, [[1024, 64, 1], [1024, 16, 1]]),
        launch(401, 9),
        kernel("nvjet_nnt", 410, 5, 9),
    ]
    lone = [kernel("sm90_gemm_unlaunched", 500, 100, 77)]
    events = read(tmp_path, [*linear(0, 1), *linear(200, 3), *attention, *lone]).events
    table, others = gemms(events)
    first, second = table.to_dict("records")
    flops = 2 * 256 * 32 * 64
    traffic = 2 * (256 * 64 + 64 * 32 + 256 * 32 + 32)
    assert list(first.values())[:6] == ["bf16", 256, 32, 64, 1, "NT"]
    assert (first["op"], first["name"], first["count"]) == ("aten::addmm", "nvjet_tst_128x64", 2)
    assert (first["total_ns"], first["busy_ns"]) == (80_000, 80_000)
    assert (first["flops"], first["bytes"]) == (2 * flops, 2 * traffic)
    assert first["flop_per_s"] == pytest.approx(2 * flops / 80e-6)
    assert first["share"] == pytest.approx(80 / 185)
    assert (second["m"], second["n"], second["k"], second["batch"], second["layout"]) == (16, 16, 64, 8, "NN")
    assert second["flop_per_s"] == pytest.approx(2 * 16 * 16 * 64 * 8 / 5e-6)
    assert others["name"].tolist() == ["sm90_gemm_unlaunched"]
    by_op = ops(events).set_index("op")
    assert by_op.loc["aten::addmm", "flop_per_s"] == pytest.approx(first["flop_per_s"])


def test_shapes_of_kernels_are_those_of_their_op(tmp_path):
    events = read(tmp_path, linear(0, 1)).events
    kernels = events[events["kind"] == "kernel"]
    assert kernels["shapes"].tolist() == ["bf16[32] bf16[256,64] bf16[64,32]"] * 2
    assert kernels["launch"].tolist() == ["grid=4,2,1 block=128,1,1", ""]
    assert (events.loc[events["kind"] == "runtime", "shapes"] == "").all()
    outer = events[events["name"] == "aten::linear"].iloc[0]
    assert (outer["shapes"], outer["gemm"]) == ("bf16[2,128,64] bf16[32,64] bf16[32]", "")


def test_ops_are_split_by_shape(tmp_path):
    small = [
        op("aten::addmm", 300, [[4], [2, 8], [8, 4]], ["float"] * 3),
        launch(301, 5),
        kernel("sgemm", 310, 7, 5),
    ]
    events = read(tmp_path, [*linear(0, 1), *linear(200, 3), *small]).events
    whole, split = ops(events), ops(events, ["shapes"])
    lines = split[split["op"] == "aten::addmm"].set_index("shapes")
    assert lines["count"].to_dict() == {"bf16[32] bf16[256,64] bf16[64,32]": 2, "f32[4] f32[2,8] f32[8,4]": 1}
    assert lines["kernel_ns"].tolist() == [80_000, 7_000]
    assert lines["kernel_ns"].sum() == whole.set_index("op").loc["aten::addmm", "kernel_ns"]
    assert lines["flop_per_s"].iloc[1] == pytest.approx(2 * 2 * 8 * 4 / 7e-6)
    assert split["share"].sum() == pytest.approx(1)
    by_shape = describe(work(events), ["name", "shapes"])
    assert by_shape.set_index("name").loc["sgemm", "shapes"] == "f32[4] f32[2,8] f32[8,4]"


def test_a_linear_that_no_product_is_recorded_in_is_the_product(tmp_path):
    events = read(tmp_path, [op("aten::linear", 0, [[2, 128, 64], [32, 64], []], [BF16, BF16, ""])]).events
    table, _ = gemms(events)
    assert table[["m", "n", "k", "layout", "flops", "bytes"]].values.tolist() == [
        [256, 32, 64, "--", 2 * 256 * 32 * 64, 2 * (256 * 64 + 64 * 32 + 256 * 32)]
    ]


def test_a_product_with_a_packed_weight_has_the_size_of_the_plain_one(tmp_path):
    """Arguments as PyTorch 2.13 records them: the packed weight is one long column."""
    dims, strides = [[8, 1, 48], [1982689, 1], [64, 48], [64], []], [[48, 48, 1], [], [48, 1], [1], []]
    events = read(tmp_path, [op("mkl::_mkl_linear", 0, dims, ["float"] * 4 + ["Scalar"], strides)]).events
    table, _ = gemms(events)
    assert table[["m", "n", "k", "layout", "flops", "bytes"]].values.tolist() == [
        [8, 64, 48, "NT", 2 * 8 * 64 * 48, 4 * (8 * 48 + 64 * 48 + 8 * 64 + 64)]
    ]


def test_products_of_a_program_on_a_gpu_and_on_a_cpu(tmp_path):
    for content, count in ((profiles.small_gpu_space(), 1), (profiles.small_cpu_space(3), 3)):
        (tmp_path / "trace.pb").write_bytes(content)
        events = ingest(tmp_path / "trace.pb").events
        table, _ = gemms(events)
        assert table[["dtype", "m", "n", "k", "op", "count"]].values.tolist() == [["f32", 2, 4, 3, "dot", count]]
        assert table["flops"].tolist() == [2 * 2 * 4 * 3 * count]
        assert events.loc[events["op"] == "dot.1", "shapes"].unique().tolist() == ["f32[2,3] f32[3,4]"]


def test_a_profile_without_products(tmp_path):
    table, others = gemms(read(tmp_path, [host("cpu_op", "aten::add", 0, 5)]).events)
    assert (len(table), len(others)) == (0, 0)


def test_a_file_keeps_shapes_products_and_launches(tmp_path):
    made = read(tmp_path, linear(0, 1))
    (tmp_path / "table").write_bytes(profile_files.encode(made))
    after = profile_files.load(tmp_path / "table").events
    for column in ("shapes", "gemm", "launch"):
        assert after[column].tolist() == made.events[column].tolist()
    pd.testing.assert_frame_equal(gemms(after)[0], gemms(made.events)[0])


def recomputed(path):
    """Products by dtype, M, N, K, batch: their number, FLOPs, and the time of what was launched within their ops."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    took = Counter()
    for each in kernels:
        took[each["args"].get("External id")] += round(each["dur"] * 1000)
    ran = {each["args"].get("External id") for each in kernels if each["cat"] == "kernel"}
    found: dict[tuple, list[int]] = {}
    for each in events:
        first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1}.get(each["name"], -1)
        if each.get("cat") != "cpu_op" or first < 0 or each["args"]["External id"] not in ran:
            continue
        a, b = each["args"]["Input Dims"][first : first + 2]
        key = ({BF16: "bf16", "float": "f32"}[each["args"]["Input type"][first]], a[-2], b[-1], a[-1], prod(a[:-2]))
        line = found.setdefault(key, [0, 0, 0])
        line[0] += 1
        line[1] += 2 * prod(a) * b[-1]
        line[2] += took[each["args"]["External id"]]
    return found


REAL = {
    "b200_torch_eager.json.gz": 109,
    "h100_torch_qwen_inference.json.gz": 169,
    "mi300_torch_resnet_training_checkpointed.json.gz": 9,
    "torch_compile_triton.json.gz": 7,
}
"""Matrix products of each trace."""


@pytest.mark.parametrize("name", REAL)
def test_the_products_of_a_real_trace(name):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    table, _ = gemms(ingest(SHARED / name).events)
    found = {
        (each.dtype, each.m, each.n, each.k, each.batch): [each.count, each.flops, each.total_ns]
        for each in table.itertuples(index=False)
    }
    assert found == recomputed(SHARED / name)
    assert table["count"].sum() == REAL[name]
    assert "-" not in "".join(table["layout"])


def test_a_real_convolution_is_no_product():
    path = SHARED / "mi300_jax_conv.xplane.pb"
    if not path.exists():
        pytest.skip(f"{SHARED} is not here")
    found = ingest(path).events
    assert len(gemms(found)[0]) == 0
    conv = work(found)
    conv = conv[conv["opcode"] == "custom-call"]
    assert set(conv["shapes"]) == {"bf16[1,16,32,60,104] bf16[5120,16,1,2,2]"}
    assert "grid=219,40,1 block=256,1,1 shared=49280" in set(conv["launch"])
