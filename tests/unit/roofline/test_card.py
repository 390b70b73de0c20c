"""The card of a machine, from made records whose times are known."""

import json

import pytest
from msgspec.structs import replace
from support.records import make_ceiling, make_record

from benchmarker import Figure, UserError
from benchmarker.display.card import card_output
from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.ceilings import Ceilings, key_of
from benchmarker.records.machine import Cache, DeviceInfo
from benchmarker.records.record import CostPart, Failure
from benchmarker.roofline.card import card
from benchmarker.tables import terminal
from benchmarker.tables.table import Table

HERE = make_record().machine
CACHES = [Cache(1, 2**15), Cache(2, 2**20), Cache(3, 2**25)]
MACHINE = replace(HERE, cpu=replace(HERE.cpu, caches=CACHES))
GPU = DeviceInfo("cuda", "NVIDIA H200", "GPU-1", None, 2**37, None)
ROOF = (make_ceiling(10e9), make_ceiling(4e9, "memory", method="quick"), make_ceiling(30e9, precision="bf16"))
DRIFT = [1.0, 1.1, 0.9, 1.2, 1.05, 0.95]
"""What each round is slower by; the median is 1.025."""


def trials(number, problem, step_s, params, device="cpu", framework="torch", rounds=6, **fields):
    """The trials of a case."""
    if device == "cuda":
        fields["device"] = GPU
    return [
        make_record(
            step_s * drift,
            trial=trial,
            case={"problem": problem, "framework": framework, "device": device, "params": params},
            design={"case_number": number},
            machine=MACHINE,
            **fields,
        )
        for trial, drift in enumerate(DRIFT[:rounds])
    ]


def launches(device="cpu"):
    enqueue = [Figure("enqueue_s", "s", "lower", [3e-6])]
    one = trials(1, "launch", 1e-5, {"kernels": 1}, device, figures=enqueue, cost=CostPart(0, 0, 8, 1, None))
    many = trials(2, "launch", 1e-3, {"kernels": 1000}, device, cost=CostPart(0, 0, 8, 1000, None))
    return [*one, *many]


def loads(sizes=(2**14, 2**19, 2**28), rounds=6):
    several = (
        trials(10 + at, "latency", 1e-3 * (at + 1), {"bytes": size, "loads": 10**6}, framework="jax", rounds=rounds)
        for at, size in enumerate(sizes)
    )
    return [record for of in several for record in of]


def copies(memory="pinned", extra_s=0.0):
    """Copies of 20 µs and 10 GB/s; the middle size may take longer."""
    sizes = (2**12, 2**20, 2**28)
    several = (
        trials(
            20 + at,
            "transfer",
            2e-5 + size / 1e10 + extra_s * (at == 1),
            {"bytes": size, "direction": "to_device", "memory": memory},
            "cuda",
        )
        for at, size in enumerate(sizes)
    )
    return [record for of in several for record in of]


def made(*records, ceilings=ROOF):
    return card(Cases.of([record for several in records for record in several]), load_metrics(), Ceilings(ceilings))


def test_a_launch_is_one_kernel_and_many_before_one_wait():
    (found,) = made(launches()).launches
    assert (found.framework, found.device, found.trials, found.kernels) == ("torch", "cpu", 6, 1000)
    assert found.enqueue_s.value == pytest.approx(3e-6)
    assert found.complete_s.value == pytest.approx(1.025e-5, rel=1e-3)
    assert (found.complete_s.low, found.complete_s.high) == (pytest.approx(0.9e-5), pytest.approx(1.2e-5))
    assert found.kernels_per_s.value == pytest.approx(1e6 / 1.025, rel=1e-2)


def test_loads_are_named_by_the_first_cache_that_holds_them():
    found = made(loads())
    assert [(each.level, each.bytes) for each in found.loads] == [("L1", 2**14), ("L2", 2**19), ("memory", 2**28)]
    assert [each.load_s.value for each in found.loads] == pytest.approx([1.025e-9, 2.05e-9, 3.075e-9], rel=1e-3)


def test_copies_are_a_line_through_their_sizes():
    (found,) = made(copies(), launches("cuda")).copies
    assert (found.direction, found.memory, found.trials) == ("to_device", "pinned", 6)
    assert found.latency_s.value == pytest.approx(2e-5 * 1.025, rel=1e-3)
    assert found.bytes_per_s.value == pytest.approx(1e10 / 1.025, rel=1e-2)
    assert found.residual < 1e-3


def test_on_a_cpu_there_are_no_copies_and_the_reason_says_so():
    found = made(launches(), loads())
    assert found.copies == []
    assert found.reasons == {"copies": "the frameworks that were measured see no device but the CPU, which is the host"}
    assert "see no device but the CPU" in "\n".join(map(str, card_output(found)))


def test_the_highest_ceilings_of_each_device_stand_on_it():
    of_gpu = key_of(copies()[0])
    card_of_gpu = made(launches(), copies(), ceilings=(*ROOF, make_ceiling(4.2e12, "memory", device=of_gpu)))
    assert [(each.device.platform, each.resource, each.precision, each.value) for each in card_of_gpu.ceilings] == [
        ("cpu", "compute", "fp32", 10e9),
        ("cpu", "compute", "bf16", 30e9),
        ("cpu", "memory", "fp32", 4e9),
        ("cuda", "memory", "fp32", 4.2e12),
    ]
    assert any("NVIDIA H200" in note and "no ceiling" in note for note in card_of_gpu.notes)  # in fp32
    shown = [part for part in card_output(card_of_gpu) if isinstance(part, Table)]
    text = "\n".join(map(terminal.text, shown))
    assert "88%" in text  # of the 4.8 TB/s of NVIDIA's data sheet


@pytest.mark.parametrize(
    ("records", "doubt"),
    [
        (loads(rounds=2), "too few trials for intervals; --trials=6 or more give them"),
        (loads(sizes=(2**14, 2**24)), "the largest working set, 16 MiB, is less than twice the last cache, 32 MiB"),
        (copies(extra_s=1e-3), "torch, to_device, pinned: a size is "),
        (launches(), "quick ceilings are of one process each"),
    ],
)
def test_what_makes_one_doubt_it_is_noted(records, doubt):
    assert [note for note in made(records).notes if doubt in note]
    assert not [note for note in made(loads(), copies(), ceilings=ROOF[:1]).notes if doubt in note]


def test_what_failed_is_counted_and_a_part_that_failed_has_its_reason():
    failure = Failure(stage="timed", kind="exception", message="out of order")
    failed = trials(1, "launch", 1e-5, {"kernels": 1}, error=failure, status="failed")
    found = made(failed, loads())
    assert found.reasons["launches"] == "every trial of launch failed: out of order"
    assert "6 of 24 trials failed, for instance: out of order" in found.notes


def test_without_ceilings_the_reason_names_the_command():
    found = made(launches(), ceilings=())
    assert found.ceilings == []
    assert "run `benchmarker ceilings" in found.reasons["ceilings"]


def test_other_records_and_several_machines_are_refused():
    with pytest.raises(UserError, match="no trial of launch, transfer or latency was read"):
        made([make_record()])
    other = replace(MACHINE, host="other")
    with pytest.raises(UserError, match="several machines"):
        made(launches(), [make_record(case={"problem": "launch", "params": {"kernels": 1}}, machine=other)])


def test_the_card_fits_80_columns():
    found = made(launches(), launches("cuda"), loads(), copies(), copies("pageable"))
    tables = [part for part in card_output(found) if isinstance(part, Table)]
    assert len(tables) == 5
    for table in tables[1:]:
        printed = terminal.lines(table, 80)
        assert printed.left_out == []
        assert max(map(len, [*printed.headings, *printed.rows])) <= 80


def test_shown_again_by_the_command(command, tmp_path):
    (tmp_path / "results").mkdir()
    for record in [*launches(), *loads()]:
        atomic.write(tmp_path / "results" / f"{record.trial_id}.json", atomic.encode(record))
    done = command("card", "results")
    assert done.returncode == 0, done.stderr
    assert "launches: one kernel, and many before one wait" in done.stdout
    found = json.loads(command("card", "results", "--json").stdout)
    assert found["loads"][0]["level"] == "L1"
    assert found["copies"] == []
    assert found["reasons"]["copies"]
    assert "leave --trials out" in command("card", "results", "--trials=3").stderr
