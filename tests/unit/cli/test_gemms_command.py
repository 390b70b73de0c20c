"""`profile gemms`, and the shapes and launches of `profile ops` and `profile kernels`."""

import json
import re

import msgspec
import pytest
from support import profiles
from support.records import make_ceiling, make_record

from benchmarker.files import atomic
from benchmarker.records import ceilings
from benchmarker.traces import profile_files
from benchmarker.traces.ingest import ingest

A100 = "NVIDIA A100-SXM4-80GB"
FLOPS, NS = 2 * 2 * 3 * 4, 33_125
"""FLOPs of each product of the trace, and its duration."""


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    return "t.json"


@pytest.fixture
def record(tmp_path):
    """A record with the same products, and ceilings of its device of 1 TFLOP/s and 10 GB/s."""
    (tmp_path / "t.json").write_bytes(profiles.torch_json())
    found = ingest(tmp_path / "t.json")
    made = msgspec.structs.replace(make_record(1.0), trace=found.trace)
    atomic.write(tmp_path / "r.json", atomic.encode(made))
    (tmp_path / "r.events.parquet").write_bytes(profile_files.encode(found))
    known = [make_ceiling(1e12), make_ceiling(1e10, "memory")]
    ceilings.write(tmp_path / "ceilings.json", known)
    return "r.json"


def refused(done, *texts):
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    for text in texts:
        assert text in done.stderr


def test_products_of_a_trace(command, trace):
    (line,) = json.loads(command("profile", "gemms", trace, "--json").stdout)
    assert (line["dtype"], line["m"], line["n"], line["k"], line["batch"], line["layout"]) == ("f32", 2, 4, 3, 1, "--")
    assert (line["count"], line["flops"], line["total_ns"]) == (2, 2 * FLOPS, 2 * NS)
    assert line["flop_per_s"] == pytest.approx(FLOPS / NS * 1e9)
    assert line["share"] == 1
    assert "of_roof" not in line
    text = command("profile", "gemms", trace).stdout
    assert text.splitlines()[-1] == "all: 96 FLOP in 66.25 µs, 1.449 MFLOP/s, 100.0% of the busy time"
    assert "batch" not in text
    assert command("profile", "gemms", trace, "--csv").stdout.splitlines()[0].startswith("dtype,m,n,k,batch,layout,op")


def test_products_under_the_roof_of_the_named_device(command, trace):
    def of_roof(*words):
        return json.loads(command("profile", "gemms", trace, "--roof=vendor", *words, "--json").stdout)[0]["of_roof"]

    least_s = 2 * (2 * 3 + 3 * 4 + 2 * 4) * 4 / 2.039e12  # bound by memory, whatever the precision
    assert of_roof(f"--device={A100}") == pytest.approx(least_s / (2 * NS * 1e-9), rel=1e-3)
    assert of_roof(f"--device={A100}", "--precision=tf32") == pytest.approx(least_s / (2 * NS * 1e-9), rel=1e-3)
    refused(command("profile", "gemms", trace, "--device=abacus", "--roof=vendor"), "it has", A100.split("-")[0])
    refused(command("profile", "gemms", trace, "--device=abacus"), "no ceiling of abacus in fp32", "--roof=vendor")


def test_a_roof_of_another_precision_is_no_roof(command, tmp_path):
    events = profiles.torch_events()
    for event in events:
        if "Input type" in event.get("args", {}):
            event["args"]["Input type"] = ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn"]
            break
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    done = command("profile", "gemms", "t.json", f"--device={A100}", "--roof=vendor", "--json")
    lines = {line["dtype"]: line["of_roof"] for line in json.loads(done.stdout)}
    assert lines["f8e4m3fn"] is None
    assert lines["f32"] > 0
    text = command("profile", "gemms", "t.json", f"--device={A100}", "--roof=vendor").stdout
    assert f"no roof: the vendor data file has no fp8 peak for {A100}" in text


def test_products_of_a_record_under_its_measured_ceiling(command, record):
    (line,) = json.loads(command("profile", "gemms", record, "--json").stdout)
    least_s = 2 * (2 * 3 + 3 * 4 + 2 * 4) * 4 / 1e10
    assert line["of_roof"] == pytest.approx(least_s / (2 * NS * 1e-9))
    refused(command("profile", "gemms", record, f"--device={A100}"), "leave --device and --precision out")
    done = command("profile", "gemms", record, "--roof=vendor")
    assert done.returncode == 0
    assert "no roof: the vendor data file has no fp32 peak" in done.stdout


def test_a_profile_without_products_says_so(command, tmp_path):
    events = [{"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "aten::matmul", "ts": 0, "dur": 5}]
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    text = command("profile", "gemms", "t.json").stdout
    assert "the profile contains no matrix product of known shape" in text
    assert "not shown: 1 other event of the category gemm (100.0% of the busy time)" in text


def test_ops_and_kernels_by_shape(command, trace):
    (op,) = json.loads(command("profile", "ops", trace, "--by=shape", "--json").stdout)
    assert (op["op"], op["shapes"], op["count"]) == ("aten::mm", "f32[2,3] f32[3,4]", 2)
    (kernel,) = json.loads(command("profile", "kernels", trace, "--by=shape", "--json").stdout)
    assert (kernel["name"], kernel["shapes"]) == ("sgemm_128x64", "f32[2,3] f32[3,4]")
    (line,) = json.loads(command("profile", "ops", trace, trace, "--by=shape", "--json").stdout)
    assert (line["shapes"], line["change"]) == ("f32[2,3] f32[3,4]", "same")


def test_launches_of_kernels(command, tmp_path):
    events = profiles.torch_events(3)
    kernels = [each for each in events if each.get("cat") == "kernel"]
    for grid, each in zip((8, 8, 16), kernels, strict=True):
        each["args"] |= {"grid": [grid, 1, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 512}
        each["args"] |= {"est. achieved occupancy %": 25}
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    (tmp_path / "two.json").write_bytes(profiles.torch_json(events[: len(events) * 2 // 3]))
    launch = "grid=8,1,1 block=128,1,1 registers=40 shared=512 occupancy=25%"
    (line,) = json.loads(command("profile", "kernels", "t.json", "--json").stdout)
    assert line["launch"] == "2 different"
    lines = json.loads(command("profile", "kernels", "t.json", "--by=launch", "--json").stdout)
    assert [(each["launch"], each["count"]) for each in lines] == [(launch, 2), (launch.replace("8,", "16,", 1), 1)]
    assert launch in command("profile", "kernels", "two.json", "--wide").stdout
    assert launch not in command("profile", "kernels", "two.json").stdout


def test_what_is_unknown_is_null_or_a_dash(command, tmp_path):
    events = [{"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "aten::add", "ts": 0, "dur": 5}]
    (tmp_path / "t.json").write_bytes(profiles.torch_json(events))
    (line,) = json.loads(command("profile", "ops", "t.json", "--by=shape", "--json").stdout)
    assert line["shapes"] is None
    assert re.search("^aten::add +-  ", command("profile", "ops", "t.json", "--by=shape").stdout, re.MULTILINE)
