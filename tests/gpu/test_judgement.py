"""How each test on a GPU judges: what passes, and a failure of each, provoked."""

import gzip
import json
import math

import numpy as np
import pytest
from gpu import test_devices as devices
from gpu import test_diagnostics as diagnostics
from gpu import test_energy as energy
from gpu import test_numerics as numerics
from gpu import test_profiles as profiles
from gpu import test_speed as speed
from gpu import test_verdicts as verdicts
from support import loops
from support.loops import Ratio

GPU = {"name": "NVIDIA H200", "uuid": "GPU-1", "memory_bytes": 141 * 2**30}


def record(**parts):
    metrics = {name: {"value": value} for name, value in parts.pop("metrics", {}).items()}
    return {"error": None, "metrics": metrics, "reasons": {}, **parts}


def named(**changed):
    device = {"name": "NVIDIA H200", "uuid": "GPU-1", "memory_bytes": 140 * 2**30, **changed.pop("device", {})}
    made = record(device=device, memory={"device_peak_bytes": 50 * 2**20}, case={"gpu": 0})
    return devices.judge_named({**made, **changed}, GPU)


def oom(kind, small_error=None):
    large = record(case={"params": {"batch_size": 9}}) | {"error": kind and {"kind": kind, "message": "too large"}}
    return devices.judge_out_of_memory([large, record(case={"params": {"batch_size": 1}}) | {"error": small_error}])


def preheated(outcome):
    found = {
        "outcome": outcome,
        "duration_s": 12.0,
        "window_steps_per_s": [10.0, 9.0],
        "window_temperature_C": [30, 61],
    }
    return devices.judge_preheat(record(preheat=found))


def checked(error=1e-6, ok=True, falls=True, problems=numerics.PROBLEMS):
    check = {"mode": "inference", "note": "", "check": {"error": error, "bound": 1e-5}, "ok": ok}
    curve = {"falls": falls, "apart": 0.0, "bound": 1.0}
    return numerics.judge_right({(name, "fp32", ""): {"checks": [check], "curves": [curve]} for name in problems})


def step(value, low=None):
    return Ratio(value, low or value - 0.001, value + 0.001, 1e-3)


def gpt2(mfu, reasons=()):
    return speed.judge_gpt2({"jax": record(metrics={"tokens_per_s": 1e5, "mfu": mfu})}, list(reasons), 0.45)


def ab(verdict, ratio=1.02, low=1.015, high=1.025):
    each = {"verdict": verdict, "ratio": ratio, "low": low, "high": high, "rounds": 8}
    return {"family": {"comparisons": [each]}}


def timed(*seconds):
    return [record(metrics={"step_time_median_s": each}) for each in seconds]


def traced(
    outside=10, missing=(), devices=("cuda:0",), phases=("forward", "backward"), trace=True, compiled=False, kernels=9
):
    found = {"busy_ns": 1000, "outside_ns": outside, "kernels": kernels, "missing": list(missing)}
    found["devices"] = [{"device": each} for each in devices]
    scopes = [{"phase": each, "root_ns": 400} for each in phases]
    return profiles.judge_attributed(
        record(trace=found if trace else None, scopes=scopes, case={"device": "cuda"}), compiled
    )


def metered(ratio=1.01, mean=600.0, telemetry=({},), measured=True):
    sensor = {"measured": measured, "ratio": ratio, "idle_W": 75.0, "mean_W": mean, "observed_update_ms": 100.0}
    return energy.judge_counter(record(energy={"sensors": [sensor]}, telemetry=list(telemetry)))


def device_timed(name, device_ms):
    times = device_ms and {"steps_per_block": 2, "duration_ns": [2 * round(1e6 * device_ms)] * 3}
    made = record(device_time=times, case={"params": {"function": name}}, metrics={"step_time_median_s": 1e-3})
    return speed.judge_device_time([{**made, "reasons": {"device_time": "a step waits"}}])


def batches(*values):
    made = [record(case={"params": {"batch_size": 4**i}}, metrics={"samples_per_J": x}) for i, x in enumerate(values)]
    return energy.judge_batches(made)


def ceiling(value, peak):
    each = {"resource": "compute", "precision": "bf16", "value": value, "vendor_peak": peak}
    return speed.judge_ceilings([each] if value else [])


def quick(*values):
    kinds = ("compute", "memory")
    thorough = [{"resource": kind, "value": 100.0} for kind in kinds]
    found = [{"resource": kind, "value": value} for kind, value in zip(kinds, values, strict=False)]
    return speed.judge_quick(found, thorough if values else [])


def moved(pinned=50e9, pageable=10e9, enqueue_s=3e-6):
    return diagnostics.judge_diagnostics({"to_device": {"pageable": pageable, "pinned": pinned}}, enqueue_s, 9e-6)


def buffers(without, with_=0, busy=1000):
    return profiles.judge_command_buffers(
        {"busy_ns": 1000, "outside_ns": without}, {"busy_ns": busy, "outside_ns": with_}
    )


@pytest.mark.parametrize(
    ("outcome", "figure"),
    [
        (named(), "NVIDIA H200, GPU-1, peak 50 MiB"),
        (oom("out_of_memory"), "out_of_memory, then a record"),
        (preheated("plateau"), "plateau after 12 s; the rate changed by -10.0%, 30 to 61 °C"),
        (checked(), "4 checks, the largest error is 10% of its bound"),
        (
            numerics.judge_tf32({"fp32": 1e-7, "tf32": 3e-4}, 6.0),
            "error 1.0e-07 in fp32, 3.0e-04 in tf32; tf32 is 6.0x",
        ),
        (speed.judge_products({"bf16": (8192, Ratio(1.0, 1, 1, 1.39e-3))}), "bf16 791 TFLOP/s (1.000 of bare)"),
        (speed.judge_copy(2**28, Ratio(1.0, 1, 1, 5e-4)), "4.29 TB/s, 1.000 of bare (4.29 TB/s)"),
        (speed.judge_loop({"gemm": step(1.002)}), "gemm 1.0020"),
        (speed.judge_loop({"gemm": Ratio(1.02, 0.99, 1.05, 1e-3)}), "gemm 1.0200"),  # noise explains it
        (device_timed("sleeping", 0.01), "sleeping 0.01 ms of 1 ms"),
        (device_timed("product", 0.99), "product 0.99 ms of 1 ms"),
        (gpt2(0.5), "jax 1e+05 tokens/s (MFU 50.0%)"),
        (gpt2(None), "no MFU: the vendor's peak is unknown"),
        (speed.judge_against(step(0.98)), "ours / theirs 0.9800"),
        (ceiling(800e12, 989e12), "compute bf16 800 TFLOP/s (81% of peak)"),
        (ceiling(800e12, None), "compute bf16 800 TFLOP/s"),
        (quick(97.0, 101.0), "compute 0.970, memory 1.010"),
        (moved(), "to_device pageable 10 GB/s, pinned 50 GB/s; launch 3 µs of 9 µs"),
        (verdicts.judge_same(ab("same", 1.0, 0.99, 1.01)), "B/A 1.0000 [0.9900, 1.0100], same after 8 rounds"),
        (verdicts.judge_two_percent(ab("slower")), "B/A 1.0200 [1.0150, 1.0250], slower after 8 rounds"),
        (verdicts.judge_duet(timed(1.0, 1.0, 1.1), timed(1.01, 1.01, 0.9)), "+1.0% beside another workload"),
        (traced(), "99.0% of 0.001 ms in 9 kernels has a scope (forward 40%, backward 40%)"),
        (
            traced(outside=900, missing=["scope x"], phases=(), compiled=True),
            "10.0% of 0.001 ms in 9 kernels has a scope ()",
        ),
        (profiles.judge_second_reader(9, 1_000_000, 9, 1_000_100), "9 kernels, 1 ms; the other reader 9, 1 ms"),
        (buffers(10, 900), "without graphs 99.0% has a scope, with graphs 10.0% has a scope; busy 1.000"),
        (metered(), "counter / polled 1.010; 600 W, idle 75 W; updates every 100 ms"),
        (batches(1.0, 2.0, 3.0, 4.0), "samples/J 1: 1, 4: 2, 16: 3, 64: 4"),
        (energy.judge_sampler(1.0, 1.004), "with / without 1.0040"),
    ],
)
def test_what_holds_passes_with_its_figure(outcome, figure):
    assert list(outcome.wrong) == []
    assert figure in outcome.figure


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (named(device={"name": "A100"}), "the name is 'A100', nvidia-smi says 'NVIDIA H200'"),
        (named(device={"uuid": "GPU-2"}), "the UUID is GPU-2, nvidia-smi says GPU-1"),
        (named(device={"memory_bytes": 105 * 2**30}), "the memory is 105.0 GiB, nvidia-smi says 141.0 GiB"),
        (named(case={"gpu": None}), "--gpus=0 is not in the record"),
        (named(memory={"device_peak_bytes": 105 * 2**30}), "the peak memory of a product"),
        (named(memory={"device_peak_bytes": None}), "the peak memory of a product"),
        (oom("killed"), "the case that cannot fit: killed: too large"),
        (oom(None), "the case that cannot fit: no failure"),
        (oom("out_of_memory", {"kind": "exception", "message": "device lost"}), "the case after it: device lost"),
        (preheated("timeout"), "no plateau within 45 s"),
        (checked(ok=False), "gemm inference fp32 : {'error': 1e-06"),
        (checked(falls=False), "gemm fp32 : the losses do not fall, or differ"),
        (checked(problems=("gemm",)), "nothing is listed for attention, gpt2, stream"),
        (numerics.judge_tf32({"fp32": 3e-4, "tf32": 3e-4}, 6.0), "TensorFloat-32 was used without being requested"),
        (numerics.judge_tf32({"fp32": 1e-7, "tf32": 1e-7}, 6.0), "the error in tf32 is not that of TensorFloat-32"),
        (numerics.judge_tf32({"fp32": 1e-7, "tf32": 3e-4}, 1.0), "tf32 is hardly faster than fp32"),
        (speed.judge_products({"fp16": (8192, step(1.1))}), "fp16 reaches 90.9% of a bare loop"),
        (speed.judge_copy(2**28, step(1.2)), "it reaches 83.3% of a bare loop"),
        (speed.judge_loop({"gemm": step(1.02)}), "gemm takes 1.0200 [1.0190, 1.0210] times the bare loop"),
        (device_timed("sleeping", 0.99), "the host's share of sleeping is 1.0%"),
        (device_timed("product", 0.9), "the host's share of product is 10.0%"),
        (device_timed("product", 1.1), "the host's share of product is -10.0%"),
        (device_timed("product", None), "product: a step waits"),
        (gpt2(0.30), "the best MFU is 30.0%, less than 45%"),
        (gpt2(0.50, ["torch: it failed"]), "torch: it failed"),
        (speed.judge_against(step(1.1)), "the step takes 1.1000"),
        (ceiling(1200e12, 989e12), "compute bf16 is 121% of the vendor's peak"),
        (ceiling(None, None), "no ceiling was measured"),
        (quick(80.0, 100.0), "compute: quick / thorough is 0.800"),
        (quick(100.0, 120.0), "memory: quick / thorough is 1.200"),
        (quick(100.0), "memory: quick / thorough is 0.000"),
        (quick(), "no ceiling was measured"),
        (moved(pageable=0.0), "to_device has no rate"),
        (moved(pinned=8e9), "to_device: pinned memory reaches 80% of pageable"),
        (moved(enqueue_s=12e-6), "a kernel takes 1.2e-05 s to enqueue and 9e-06 s in all"),
        (moved(enqueue_s=0.0), "a kernel takes 0 s to enqueue and 9e-06 s in all"),
        (verdicts.judge_same(ab("faster")), "the same case is called different"),
        (verdicts.judge_two_percent(ab("undecided")), "a true difference of 2% is undecided"),
        (verdicts.judge_two_percent(ab("slower", 1.1, 1.09, 1.11)), "the interval does not contain 1.02"),
        (verdicts.judge_duet(timed(1.0), timed(1.05)), "the workloads disturb each other"),
        (traced(outside=100), "only 90.0% is attributed"),
        (traced(missing=["step 2"]), "step 2"),
        (traced(devices=("cpu",)), "the trace holds no event of the GPU"),
        (traced(phases=("forward",)), "forward and backward are not distinguished"),
        (traced(trace=False), "there is no trace"),
        (traced(kernels=0, compiled=True), "there is no kernel"),
        (profiles.judge_second_reader(9, 1000, 8, 1000), "the readers differ"),
        (profiles.judge_second_reader(9, 1_000_000, 9, 1_100_000), "the readers differ"),
        (buffers(200), "too little has a scope"),
        (buffers(0, busy=1500), "switching CUDA graphs off changes what the device does"),
        (profiles.judge_command_buffers(None, {}), "there is no trace"),
        (metered(ratio=0.9), "the counter is -10.0% off the polled power"),
        (metered(mean=80.0), "the load is not visible in the power"),
        (metered(telemetry=()), "neither clocks nor throttle reasons were read"),
        (metered(measured=False), "no sensor of the device has both a counter and polled power"),
        (energy.judge_counter(record(energy=None)), "there is no energy"),
        (batches(1.0, None), "batch size 4 has no energy"),
        (batches(2.0, 1.0), "large batches are not more efficient"),
        (energy.judge_sampler(1.0, 1.05), "the sampler makes a step 5.0% longer"),
    ],
)
def test_what_does_not_hold_fails_with_its_reason(outcome, reason):
    assert reason in "; ".join(outcome.wrong)


def test_the_ratio_of_two_loops_and_its_interval():
    found = loops.ratio(lambda: 2.0, lambda: 1.0, pairs=40)
    assert (found.value, found.low, found.high, found.bare_s) == pytest.approx((2, 2, 2, 1))
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        found = loops.ratio(lambda: math.exp(rng.normal(0.05, 0.1)), lambda: 1.0, pairs=30)
        covered += found.low <= math.exp(0.05) <= found.high
    assert 0.92 <= covered / 300 <= 0.99


def test_a_slow_loop_is_found_slow(monkeypatch):
    now = [0.0]

    def step(seconds):
        now[0] += seconds

    monkeypatch.setattr(loops.time, "perf_counter", lambda: now[0])
    found = loops.ratio(
        lambda: loops.host_block(lambda: step(0.004), lambda _: step(0.001), 3),
        lambda: loops.host_block(lambda: step(0.002), lambda _: step(0.001), 3),
        pairs=8,
    )
    assert found.value == pytest.approx(0.013 / 0.007)
    assert found.bare_s == pytest.approx(0.007)


def test_the_plain_sum_counts_kernels_copies_and_fills(tmp_path):
    events = [{"cat": "kernel", "dur": 1.5}, {"cat": "gpu_memcpy", "dur": 2}, {"cat": "gpu_memset", "dur": 1}]
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [*events, {"cat": "cpu_op", "dur": 9}]}).encode()))
    assert profiles.plain_sum(path) == (3, 4500)
