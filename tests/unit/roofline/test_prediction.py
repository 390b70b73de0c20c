"""Times of steps that no machine has run, against those worked out by hand."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from support.models import problem_of
from support.records import make_ceiling, make_record
from support.texts import make_text, prediction

from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import ceilings
from benchmarker.records.ceilings import Ceilings, DeviceKey, File
from benchmarker.records.record import CostPart
from benchmarker.roofline.model import rooflines
from benchmarker.roofline.prediction import predict
from benchmarker.roofline.roofs import FewRows, Roof, measured_roof, named_roof

H200 = Roof(989.5e12, 4.8e12)
"""NVIDIA, H200 data sheet, 2024."""
CARD = DeviceKey("cuda", "NVIDIA H200", None, None)
WEIGHTS_8B = 7_504_924_672
"""Weights of Llama-3.1-8B that a pass reads, without the rows of the embedding."""
POSITION_8B = 128 * 1024
"""Bytes of the keys and values of a position of Llama-3.1-8B in bf16."""


def decode(size="llama-3.1-8b", roof=H200, memory_bytes=None, **options):
    problem = problem_of("llama")
    params = problem(size=size, **{"phase": "decode", "depth": 1024, "new_tokens": 1, **options})
    return predict(params, "inference", "bf16", roof, memory_bytes)


@pytest.mark.parametrize(
    ("size", "ms"), [("llama-3.1-8b", "3.16"), ("llama-3.2-1b", "0.52"), ("llama-3.1-70b", "29.03")]
)
def test_a_token_takes_the_time_to_read_the_weights_and_the_cache(size, ms):
    found = decode(size)
    assert f"{found.least_s * 1e3:.2f}" == ms
    assert found.least_s < found.time_s < 1.02 * found.least_s  # what moves between the scopes is little
    (phase,) = found.phases
    assert (phase.name, phase.bound, phase.count) == ("decode", "memory", 1)
    assert found.tokens_per_s == 1 / found.time_s


def test_bytes_are_weights_the_filled_cache_and_activations():
    (phase,) = decode(impl="fused").phases
    assert phase.weight_bytes == 2 * (WEIGHTS_8B + 4096)  # one row of the embedding
    assert phase.cache_bytes == POSITION_8B * (1025 + 1)  # 1025 are read, and one is written
    assert 0 < phase.activation_bytes < 0.002 * phase.weight_bytes
    assert sum(part.time_s for part in phase.parts) == pytest.approx(phase.time_s)


def test_the_batch_at_which_decode_turns_compute_bound_by_hand():
    """Under a ridge of 100 FLOP/byte, B·f = 100·(weights + B·c), with f and c for a sequence with 2 positions."""
    products = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336) + 4096 * 128_256
    flops = 2 * products + 32 * 4 * 2 * 4096
    own_bytes = 2 * POSITION_8B + 2 * 4096 + 8  # the cache, a row of the embedding, two tokens
    batch = 100 * 2 * WEIGHTS_8B / (flops - 100 * own_bytes)
    assert batch == pytest.approx(100.2, abs=0.1)
    found = decode(roof=Roof(100.0, 1.0), depth=1)
    assert found.phases[0].crossover_batch == 101
    assert found.ridge_rows == 100  # FLOP/byte, at 2 FLOP and 2 bytes a weight


@pytest.mark.parametrize(("weight_type", "bits", "scale_inputs"), [("int8", 8, 4096), ("int4", 4, 32)])
def test_quantised_weights_take_the_time_to_read_them(weight_type, bits, scale_inputs):
    """All of the weights that are read are quantised but for a row of the embedding and 65 norms.

    Scales of 16 bits come once for 32 inputs, or for all of them, which are 4096 or more.
    """
    full, found = decode(), decode(weight_type=weight_type)
    of_weight = bits + 16 / scale_inputs
    assert found.phases[0].weight_bytes == pytest.approx(full.phases[0].weight_bytes * of_weight / 16, rel=1e-3)
    assert found.phases[0].flops == full.phases[0].flops
    assert found.time_s / full.time_s == pytest.approx(of_weight / 16, abs=0.015)
    assert found.ridge_rows == full.ridge_rows * bits / 16
    assert found.fit and full.fit
    saved = full.fit.weight_bytes - found.fit.weight_bytes
    assert saved == full.phases[0].weight_bytes - found.phases[0].weight_bytes


def test_a_long_cache_keeps_decode_memory_bound_at_every_batch():
    """A position of the cache takes 4·L·d_model FLOPs and 128 KiB in Llama-3.1-8B: 4 FLOP/byte."""
    assert decode(depth=8192).phases[0].crossover_batch is None
    (prefill,) = decode(phase="prefill", prompt_len=1024, depth=0, new_tokens=0).phases
    assert (prefill.bound, prefill.crossover_batch) == ("compute", 1)


def test_the_largest_batch_by_hand():
    fit = decode(seq_len=2048, batch_size=3, memory_bytes=141e9).fit
    assert fit.weight_bytes == 2 * 8_030_261_248
    assert fit.cache_bytes_per_sequence == 2048 * POSITION_8B
    assert fit.largest_batch == int((141e9 - 2 * 8_030_261_248) / (2048 * POSITION_8B)) == 465
    assert decode(memory_bytes=16e9).fit.largest_batch == 0
    assert decode().fit.largest_batch is None


def test_a_text_is_a_prompt_and_the_tokens_after_it():
    whole = decode(phase="generate", depth=0, prompt_len=64, new_tokens=9, batch_size=4)
    prompt = decode(phase="prefill", depth=0, prompt_len=64, new_tokens=0, batch_size=4)
    token = decode(depth=64, new_tokens=8, batch_size=4)
    assert [(each.name, each.count) for each in whole.phases] == [("prefill", 1), ("decode", 8)]
    assert whole.time_s == pytest.approx(prompt.time_s + 8 * token.time_s)
    assert whole.tokens_per_s == pytest.approx(4 * 9 / whole.time_s)
    assert whole.tokens_per_s_per_user == pytest.approx(9 / whole.time_s)
    problem = problem_of("llama")
    params = problem(phase="generate", prompt_len=64, new_tokens=1)
    assert list(params.phases()) == ["prefill"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "moe"])
def test_the_phases_of_a_text_do_its_work(name):
    problem = problem_of(name)
    heads = {"n_head": 4} if name == "gpt2" else {"n_head": 4, "n_kv_head": 2}
    params = problem(phase="generate", n_layer=1, d_model=64, **heads, prompt_len=5, new_tokens=4)
    found = predict(params, "inference", "fp32", H200)
    assert sum(each.count * each.flops for each in found.phases) == params.cost("inference", "fp32").flops
    assert found.fit.cache_bytes_per_sequence == 2 * 64 // 4 * getattr(params, "n_kv_head", 4) * params.seq_len * 4


def test_any_problem_with_parts_is_predicted():
    gemm = problem_of("gemm")
    found = predict(gemm(m=8, n=8, k=8), "inference", "fp32", Roof(1024.0, 100.0))
    assert found.time_s == found.least_s == pytest.approx(7.68)  # 768 bytes
    assert (found.tokens_per_s, found.fit, found.phases[0].crossover_batch) == (None, None, None)
    gpt2 = problem_of("gpt2")
    params = gpt2(n_layer=1, d_model=64, n_head=4)
    step = predict(params, "training", "fp32", Roof(1e12, 1e10))
    moved = sum(work.bytes for work in params.parts("training", "fp32").values())
    (phase,) = step.phases
    assert phase.weight_bytes + phase.activation_bytes == moved
    assert phase.weight_bytes >= (7 + 3) * 4 * (64 * 64 * 12 + 50257 * 64)  # AdamW, and each product three times


def test_weights_are_read_at_the_rate_of_products_with_as_many_rows():
    roof = Roof(1000.0, 100.0, few_rows=(FewRows(0.5, 50.0), FewRows(4.0, 10.0)))
    assert roof.time_s(50, 110, 100) == pytest.approx(100 / 50 + 10 / 100)
    assert roof.time_s(400, 110, 100) == pytest.approx(100 / 10 + 10 / 100)
    assert roof.time_s(225, 110, 100) == pytest.approx(100 * (1 / 50 + 1 / 10) / 2 + 10 / 100)  # half the way
    assert roof.time_s(4000, 110, 100) == pytest.approx(100 / 10 + 10 / 100)
    assert roof.time_s(40000, 110, 100) == 40  # compute-bound
    assert roof.time_s(0, 110, 100) == 1.1
    assert roof.time_s(50, 110) == 1.1


def test_each_product_of_few_rows_takes_a_time_of_its_own_to_start():
    roof = Roof(1000.0, 100.0, few_rows=(FewRows(0.5, 50.0, 0.1), FewRows(4.0, 10.0, 0.3)))
    assert roof.time_s(50, 110, 100, 7) == pytest.approx(100 / 50 + 7 * 0.1 + 10 / 100)
    assert roof.time_s(225, 110, 100, 7) == pytest.approx(100 * (1 / 50 + 1 / 10) / 2 + 7 * 0.2 + 10 / 100)
    assert roof.time_s(40000, 110, 100, 7) == 40  # compute-bound
    assert roof.time_s(0, 110, 100, 7) == 1.1  # no product


def test_the_start_of_products_is_counted_in_each_scope_that_has_weights():
    gpt2 = problem_of("gpt2")
    params = gpt2(n_layer=3, d_model=64, n_head=4, phase="decode")
    at_once = Roof(1e12, 1e6, few_rows=(FewRows(0.5, 1e6),))
    slowly = Roof(1e12, 1e6, few_rows=(FewRows(0.5, 1e6, 1.0),))
    least, found = (predict(params, "inference", "fp32", roof) for roof in (at_once, slowly))
    products = 3 * 4 + 1  # four in a layer, and the head
    assert found.time_s - least.time_s == pytest.approx(products)


def test_ceilings_of_products_of_few_rows_are_part_of_a_measured_roof():
    """A row takes 2 FLOPs a weight: per byte 0.5 in fp32, and 1 in bf16."""
    known = [
        make_ceiling(1e12),
        make_ceiling(1e10, "memory"),
        make_ceiling(8e9, "matvec"),
        make_ceiling(4e9, "matvec_8"),
    ]
    roof = measured_roof(make_record(), Ceilings(tuple(known)))
    assert roof.few_rows == (FewRows(0.5, 8e9), FewRows(4.0, 4e9))
    assert roof.source == "measured 2026-01-01 by toy gemm, toy stream, toy matvec, toy matvec_8"
    in_bf16 = [make_ceiling(1e12, precision="bf16"), make_ceiling(9e9, "matvec", precision="bf16"), *known[1:]]
    device = str(known[0].device)
    assert named_roof(device, "bf16", Ceilings(tuple(in_bf16)), "measured").few_rows == (FewRows(1.0, 9e9),)
    assert measured_roof(make_record(), Ceilings(tuple(known[:2]))).few_rows == ()
    small = msgspec.structs.replace(make_ceiling(2e9, "matvec_small"), params={"width": 1000})
    with_small = measured_roof(make_record(), Ceilings((*known, small)))
    assert (
        with_small.source == "measured 2026-01-01 by toy gemm, toy stream, toy matvec, toy matvec_small, toy matvec_8"
    )
    first, last = with_small.few_rows
    assert first == FewRows(0.5, 8e9, pytest.approx(4e6 / 2e9 - 4e6 / 8e9))
    assert last == FewRows(4.0, 4e9)
    fast = msgspec.structs.replace(small, value=9e9)  # in a cache
    assert measured_roof(make_record(), Ceilings((*known, fast))).few_rows[0].start_s == 0


@pytest.mark.parametrize("phase", ["prefill", "decode", "generate"])
def test_what_was_measured_stands_beside_what_was_predicted(command, tmp_path, phase):
    problem = problem_of("gpt2")
    params = {"n_layer": 1, "d_model": 64, "n_head": 4, "vocab_size": 97, "phase": phase}
    made = problem(**params)
    cost = made.cost("inference", "fp32")
    record = make_record(3.0)
    record = msgspec.structs.replace(
        record,
        case=msgspec.structs.replace(record.case, problem="gpt2", params=params),
        cost=CostPart(cost.flops, 0, cost.bytes, 1, 1),
    )
    known = (make_ceiling(1e12), make_ceiling(1e6, "memory"), make_ceiling(5e5, "matvec"))
    ((found,), _) = rooflines(Cases.of([record]), Ceilings(known))
    predicted = predict(made, "inference", "fp32", found.roof)
    assert found.model_s == pytest.approx(predicted.time_s)
    last = predicted.phases[-1]
    moved = sum(part.bytes for part in last.parts)
    assert phase == "prefill" or last.time_s > 1.5 * moved / 1e6  # weights are most, and read at half the bandwidth
    assert predicted.least_s < predicted.time_s
    assert found.of_model == pytest.approx(3 / predicted.time_s)
    ceilings.keep(known)
    (tmp_path / "one.json").write_bytes(atomic.encode(record))
    done = command("roofline", "one.json")
    assert f"measured: {3 / predicted.time_s:.3g} times that" in done.stdout


KNOWN = (make_ceiling(1e12), make_ceiling(1e6, "memory"), make_ceiling(5e5, "matvec"))
ROOF = Roof(1e12, 1e6, few_rows=(FewRows(0.5, 5e5),))


@pytest.mark.parametrize("phase", ["prefill", "decode", "generate"])
def test_metrics_are_the_prediction_and_the_measured_time_over_it(phase):
    ceilings.keep(KNOWN)
    record = make_text(3.0, phase=phase, new_tokens=0 if phase == "prefill" else 9)
    predicted = prediction(record, ROOF)
    derived = load_metrics()(record)
    assert derived["predicted_s"].value == pytest.approx(predicted.time_s)
    assert derived["times_predicted"].value == pytest.approx(3 / predicted.time_s)
    passes = {each.name: each.time_s for each in predicted.phases}
    for metric, of in (("predicted_ttft_s", "prefill"), ("predicted_tpot_s", "decode")):
        assert derived[metric].value == (pytest.approx(passes[of]) if of in passes else None)
        assert derived[metric].reason == (None if of in passes else f"its steps have no {of}")


def test_metrics_without_a_prediction_are_null_with_the_reason(monkeypatch):
    names = ("predicted_s", "times_predicted", "predicted_ttft_s", "predicted_tpot_s")
    derived = load_metrics()(make_text(phase="decode"))
    assert all(derived[name].value is None and "run `benchmarker ceilings" in derived[name].reason for name in names)
    ceilings.keep(KNOWN)
    derive = load_metrics()
    unknown = make_text(phase="decode", problem="gone")
    rejected = make_text(phase="decode")
    rejected.case.params["n_layer"] = -1
    monkeypatch.setattr(problem_of("gpt2"), "parts", lambda *_: {})
    for record, reason in (
        (make_text(phase="decode", depth=3), "gpt2 has no formula for the work of its scopes"),
        (unknown, "the problem gone is not installed"),
        (rejected, "gpt2 gives no formula for these parameters: --n-layer=-1: "),
    ):
        assert all(derive(record)[name].value is None for name in names)
        assert all(derive(record)[name].reason.startswith(reason) for name in names)


def test_the_phases_of_a_text_are_points_by_the_times_of_its_tokens(command, tmp_path):
    """A request takes 3 s until its first token and 0.5 s for each of 8 others, on average."""
    gaps = [0.4, 0.6] * 4
    record = make_text(9.0, [3.0, 2.0, 4.0], gaps, phase="generate", prompt_len=16, new_tokens=9)
    ((found,), _) = rooflines(Cases.of([record]), Ceilings(KNOWN[:2]))
    points = {each.name: each for each in found.points if each.level == "phase"}
    assert {name: each.time_s for name, each in points.items()} == pytest.approx({"prefill": 3.0, "decode": 0.5})
    for phase in prediction(record, Roof(1e12, 1e6)).phases:
        assert points[phase.name].predicted_s == pytest.approx(phase.least_s)
        assert points[phase.name].share == pytest.approx(phase.least_s / points[phase.name].time_s)
    assert points["prefill"].flops + 8 * points["decode"].flops == pytest.approx(record.cost.flops)
    ((alone,), _) = rooflines(Cases.of([make_text(9.0, [3.0], phase="prefill", prompt_len=16)]), Ceilings(KNOWN[:2]))
    assert {each.level for each in alone.points} == {"step"}  # it is the phase
    ceilings.keep(KNOWN)
    (tmp_path / "one.json").write_bytes(atomic.encode(record))
    shown = command("roofline", "one.json", "--level=phase").stdout
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("phase")] == [
        ["phase", "prefill"],
        ["phase", "decode"],
    ]


def test_the_formula_of_a_case_is_worked_out_once_for_all_its_records(monkeypatch):
    """Else `show` of thousands of records would be several times slower."""
    records = [make_text(trial=trial, phase="decode", depth=77) for trial in range(50)]
    problem = problem_of("gpt2")
    asked = []
    parts = problem.parts
    monkeypatch.setattr(problem, "parts", lambda self, *args: asked.append(args) or parts(self, *args))
    ceilings.keep(KNOWN)
    derive = load_metrics()
    first = derive(records[0])["predicted_s"].value
    once = len(asked)
    assert once > 0
    assert {derive(record)["predicted_s"].value for record in records} == {first}
    assert len(asked) == once


WORDS = ("predict", "--problem=llama", "--size=llama-3.1-8b", "--phase=decode", "--precision=bf16", "--batch-size=1")
VENDOR = ("--roof=vendor", "--device=NVIDIA H200")


def test_the_command_predicts_from_the_data_sheet(command):
    done = command(*WORDS, "--depth=1024", "--new-tokens=1", *VENDOR)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^decode +1 +3\.\d+ ms +3\.155 ms +memory +13\.98 GiB +128\.2 MiB", done.stdout, re.M)
    assert "ridge: products with weights are compute-bound from 207 tokens a pass on" in done.stdout
    assert "decode is memory-bound at every batch size" in done.stdout
    assert "a batch of 929 or less fits into 141 GB" in done.stdout
    assert "no device reaches the vendor's peaks" in done.stdout
    assert "attn_qkv" not in done.stdout
    assert "attn_qkv" in command(*WORDS, *VENDOR, "--verbose").stdout


def test_the_command_predicts_from_ceilings_of_another_machine(command, tmp_path):
    """A file from before products of few rows were measured is read, too."""
    of_card = [make_ceiling(700e12, device=CARD, precision="bf16"), make_ceiling(4e12, "memory", device=CARD)]
    (tmp_path / "h200.json").write_bytes(atomic.encode(File(1, of_card)))
    plain = json.loads(command(*WORDS, "--ceilings=h200.json", "--json").stdout)
    assert (plain["roof"]["bytes_per_s"], plain["roof"]["few_rows"]) == (4e12, [])
    assert plain["fit"]["memory_bytes"] == 141e9  # by the name of the device
    assert plain["phases"][0]["parts"][0]["scope"] == "embed"
    assert "products of few rows may read weights more slowly" in command(*WORDS, "--ceilings=h200.json").stdout
    (tmp_path / "h200.json").write_bytes(
        atomic.encode(File(1, [*of_card, make_ceiling(2e12, "matvec", device=CARD, precision="bf16")]))
    )
    slower = json.loads(command(*WORDS, "--ceilings=h200.json", "--json").stdout)
    assert slower["time_s"] > 1.9 * plain["time_s"]


def test_options_have_the_defaults_of_the_device(command):
    ceilings.keep([make_ceiling(1e12), make_ceiling(1e10, "memory")])
    here, there = (
        json.loads(command("predict", "--problem=gemm", *words, "--json").stdout)["name"] for words in ((), VENDOR)
    )
    assert (here, there) == ("GEMM 1024×1024×1024", "GEMM 8192×8192×8192")


def test_the_size_of_the_memory_can_be_given(command):
    ceilings.keep([make_ceiling(1e12), make_ceiling(1e10, "memory")])
    words = ("predict", "--problem=llama", "--phase=decode")
    assert "give --memory=GB" in command(*words).stdout
    assert "fits into 2 GB" in command(*words, "--memory=2").stdout
    crowded = command(*words, "--memory=1", "--batch-size=500").stdout
    assert "note: a batch of 500 does not fit" in crowded
    assert "no batch fits into 0.01 GB" in command(*words, "--memory=0.01").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no ceiling is known: add --measure (a few minutes), give --ceilings=FILE of another machine, or give"),
        (("--measure", *VENDOR), "--measure is for this machine"),
        (("--ceilings=none.json",), "cannot read none.json: No such file"),
        (("--ceilings=wrong.json",), "cannot read wrong.json: Object missing required field"),
        (("--ceilings=two.json",), "ceilings of 2 devices are known, give --device=NAME: NVIDIA H200; other"),
        (("--ceilings=two.json", "--device=third"), "no ceiling of third in bf16 is known"),
        (("--ceilings=two.json", "--device=other"), "no ceiling of other in bf16 is known: run `benchmarker ceilings`"),
        (("--ceilings=two.json", *VENDOR), "leave --ceilings out"),
        (("--roof=vendor",), "--roof=vendor needs a device: give --device=NAME"),
        (("--roof=vendor", "--device=Abacus"), "the vendor data file has no device named Abacus; it has NVIDIA V100"),
        ((*VENDOR, "--mode=training"), "--phase=decode needs --mode=inference"),
        ((*VENDOR, "--prompt-len=3"), "prompt_len=3 needs phase=prefill or generate"),
        ((*VENDOR, "--memory=0"), "--memory"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_a_line(command, tmp_path, words, message):
    other = DeviceKey("cuda", "other", None, None)
    two = [make_ceiling(1e12, device=CARD), make_ceiling(1e12, device=other), make_ceiling(1e9, "memory", device=other)]
    (tmp_path / "two.json").write_bytes(atomic.encode(File(1, two)))
    (tmp_path / "wrong.json").write_text("{}")
    done = command(*WORDS, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_problem_without_parts_is_refused(cli):
    done = cli("predict", "--problem=collective", *VENDOR)
    assert done.returncode == 2
    assert "the problem has no formula for the work of its scopes" in done.stderr
