"""The meter on the real binding, which loads a fake of AMD's library (tests/support/amdsmi.c), in a new process."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from support import amdsmi
from support.cards import Card, Constant, Fault, Ramp, VirtualClock, Wave, write

CHILD = """
import json, os, struct, sys
import msgspec
from benchmarker import UserError
from benchmarker.hooks import registry
from benchmarker import NoMeterError
clock, device, *times = sys.argv[1:]
file = os.open(clock, os.O_WRONLY)
def late(seconds):
    os.pwrite(file, struct.pack("=q", round(float(seconds) * 1e9)), 0)
late(times[0])
try:
    meter = registry.load(["meter.amdsmi"]).hook.make_meter(device=device or None)
except NoMeterError as error:
    print(json.dumps({"reason": error.unavailable.reason, "message": str(error)}))
except UserError as error:
    print(json.dumps({"reason": None, "message": str(error)}))
else:
    readings = [late(time) or meter.read() for time in times]
    assert all(type(each) in (float, str) for row in readings for each in row)
    names = [each.quantity + (f" {each.what}" if each.what else "") for each in meter.channels]
    print(json.dumps({
        "channels": msgspec.to_builtins(meter.channels),
        "unavailable": {each.what: [each.reason, each.message] for each in meter.unavailable},
        "names": names,
        "readings": [dict(zip(names, row)) for row in readings],
        "rows": readings,
    }))
"""
MI300X = Card(uuid="aaff74a1-0000-1000-8000-000000000001", pci="0000:C1:00.0", name="AMD Instinct MI300X")
NAVI = replace(MI300X, generation=8, name="AMD Radeon RX 7900 XTX")
SPIKES = Wave(90.0, 700.0, 0.5, 0.02)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Reads cards at some times, in a new process; gives channels, readings and what is unavailable, or the reason."""

    def run(cards, *times, device="rocm", **variables):
        clock = VirtualClock(tmp_path / "clock")
        write(tmp_path / "script", cards, clock)
        for name in ("ROCM_HOME", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        environment = {**os.environ, **amdsmi.environment(tmp_path / "script"), **variables}
        words = [sys.executable, "-c", CHILD, str(clock.path), device, *map(str, times or (10,))]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # and nothing else is printed

    return run


@pytest.mark.parametrize(
    "curve",
    [Constant(250.0), Ramp(100.0, 500.0, 20.0), Wave(80.0, 400.0, 1.0, 0.3), SPIKES],
    ids=lambda each: each.script,
)
def test_differences_of_the_counter_are_the_integral_of_the_power(measure, curve):
    first, last = (each["energy_J"] for each in measure([replace(MI300X, curve=curve)], 5.0, 35.0)["readings"])
    exact = curve.energy(35.0) - curve.energy(5.0)
    assert last - first == pytest.approx(exact, rel=1e-3)
    assert (last - first) / 15.3 * 15 != pytest.approx(exact, rel=0.019)  # with the resolution as a whole number


@pytest.mark.parametrize("curve", [Constant(250.0), Ramp(100.0, 500.0, 20.0), SPIKES], ids=lambda each: each.script)
@pytest.mark.parametrize(
    ("card", "quantity", "other", "window_s"),
    [(MI300X, "power_instant_W", "power_average_W", 0.1), (NAVI, "power_average_W", "power_instant_W", 1.0)],
    ids=["MI300X", "Navi"],
)
def test_a_card_has_one_of_the_two_powers(measure, curve, card, quantity, other, window_s):
    found = measure([replace(card, curve=curve)], 5.0, 12.0)
    for reading, time in zip(found["readings"], (5.0, 12.0), strict=True):
        expected = (curve.energy(time) - curve.energy(time - window_s)) / window_s
        assert reading[quantity] == pytest.approx(expected, abs=0.51)  # the library gives whole watts
    assert found["unavailable"][other][0] == "sentinel"
    assert other not in found["names"]


def test_the_state_of_a_card_is_read_in_the_units_of_its_names(measure):
    found = measure([replace(MI300X, temperature=51.0, temperature_rise=1.0, limit=750.0)], 10.0)
    known = {
        "power_limit_W": 750,
        "temperature_C": 61,
        "memory_temperature_C": 66,
        "sm_clock_MHz": 2100,
        "memory_clock_MHz": 1300,
        "utilisation_percent": 97,
        "memory_used_bytes": 3 * 2**30,
    }
    assert {name: found["readings"][0][name] for name in known} == known
    about = {"id": MI300X.uuid, "pci": "0000:c1:00.0", "device": MI300X.name, "domain": "gpu"}
    assert all(each | about == each for each in found["channels"])


def test_a_limit_in_watts_is_left_as_it_is(measure):
    assert measure([replace(MI300X, limit=750e-6)])["readings"][0]["power_limit_W"] == 750


@pytest.mark.parametrize(("bit", "word"), [(36, "thermal"), (34, "thermal"), (0, "power cap"), (47, "hardware")])
def test_the_time_that_a_limit_held_is_counted(measure, bit, word):
    found = measure([replace(MI300X, throttle=(1 << bit, 2.0, 5.0))], 1, 3, 3.0004, 4, 10)
    for what in ("thermal", "power cap", "hardware"):
        whole = 3 if what == word else 0
        counted = [each[f"throttle_time_s {what}"] for each in found["readings"]]
        assert counted == pytest.approx([0, whole / 3, whole / 3, whole * 2 / 3, whole])
    assert found["unavailable"]["throttle_mask"][0] == "sentinel"


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, set()),
        (0b10, {"power cap"}),
        (1 << 16 | 1 << 23, {"current limit"}),
        (1 << 36 | 1, {"thermal", "power cap"}),
        (1 << 45, {"thermal"}),
        (1 << 47 | 1 << 57, {"hardware", "other limit"}),
    ],
)
def test_the_mask_of_throttling_has_a_word_for_each_bit(measure, mask, words):
    found = measure([replace(NAVI, throttle=(mask, 0.0, 100.0))])
    (bits,) = (each["bits"] for each in found["channels"] if each["quantity"] == "throttle_mask")
    read = int(found["readings"][0]["throttle_mask"])
    assert {word for bit, word in bits.items() if read & int(bit)} == words
    assert found["unavailable"]["throttle_time_s"][0] == "sentinel"


SECOND = replace(MI300X, uuid="bbff74a1-0000-1000-8000-000000000001", pci="0000:05:00.0", curve=Constant(300.0))
BOTH = ["0000:c1:00.0", "0000:05:00.0"]
"""In the library's order; HIP's is the other. HIP calls its first card GPU-000000000000000a, its second -...b."""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, BOTH),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000000a"}, BOTH[1:]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, BOTH[:1]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, BOTH[:1]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, BOTH),
        ({"HIP_VISIBLE_DEVICES": "0"}, BOTH[1:]),
        ({"HIP_VISIBLE_DEVICES": "0,1"}, BOTH),
        ({"CUDA_VISIBLE_DEVICES": "0"}, BOTH[1:]),
        ({"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}, BOTH),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0123456789abcdef"}, BOTH),
    ],
)
def test_cards_are_told_apart_whatever_their_order(measure, variables, expected):
    cards = [replace(MI300X, hip_index=1), replace(SECOND, hip_index=0)]
    found = measure(cards, 10.0, **variables)
    energies = [each for each in found["channels"] if each["quantity"] == "energy_J"]
    assert [each["pci"] for each in energies] == expected
    assert [each["quantity"] for each in found["channels"][: len(expected)]] == ["energy_J"] * len(expected)
    joules = {"0000:c1:00.0": (MI300X.uuid, 1000), "0000:05:00.0": (SECOND.uuid, 3000)}
    read = found["rows"][0][: len(expected)]
    assert [each["id"] for each in energies] == [joules[pci][0] for pci in expected]
    assert read == pytest.approx([joules[pci][1] for pci in expected], rel=1e-3)


def test_all_cards_stay_where_hip_has_no_numbers_for_them(measure):
    unknown = (Fault("amdsmi_get_gpu_enumeration_info", 2),)
    cards = [replace(MI300X, hip_index=1, faults=unknown), replace(SECOND, hip_index=0)]
    assert {each["pci"] for each in measure(cards, HIP_VISIBLE_DEVICES="0")["channels"]} == set(BOTH)


def test_a_card_without_a_uuid_is_known_by_its_address(measure):
    found = measure([replace(MI300X, faults=(Fault("amdsmi_get_gpu_device_uuid", 2),))])
    assert {each["id"] for each in found["channels"]} == {"0000:c1:00.0"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AMD Instinct MI300A", {"domain": "module"}),
        ("AMD Instinct MI250X", {"domain": "gpu", "shared": True, "scope": "both dies of the card"}),
    ],
)
def test_energy_that_is_not_of_one_gpu_alone_is_marked(measure, name, said):
    channels = measure([replace(MI300X, name=name)])["channels"]
    assert all((each | said == each) == (each["quantity"] in ("energy_J", "power_instant_W")) for each in channels)


ALL = ("energy_count", "power_info", "temp_metric", "temp_metric:hotspot", "clock_info", "gpu_activity")
ALL += ("gpu_memory_usage", "gpu_metrics_info")


@pytest.mark.parametrize(
    ("faults", "device", "reason", "message"),
    [
        ([("init", 34)], "rocm", "driver", "Driver not loaded; load the driver"),
        ([("init", 16)], "", "driver", "INTERNAL_EXCEPTION"),
        ([("init", 10)], "rocm", "permission", "groups render and video"),
        ([("init", 2)], "rocm", "unsupported", "Feature not supported"),
        ([("get_socket_handles", 1)], "rocm", "unsupported", "finds no AMD GPU"),
        ([], "cuda", "unsupported", "the device is cuda"),
        ([(f"get_{each}", 10) for each in ALL], "rocm", "permission", "Permission Denied"),
        ([(f"get_{each}", 1000) for each in ALL], "rocm", "sentinel", "a placeholder, not a reading"),
    ],
)
def test_a_meter_that_cannot_be_opened_says_why(measure, faults, device, reason, message):
    card = replace(MI300X, faults=[Fault(f"amdsmi_{function}", code) for function, code in faults])
    found = measure([card], device=device)
    assert (found["reason"], message in found["message"]) == (reason, True), found


def test_a_missing_library_is_one_line_with_the_remedy(measure, tmp_path):
    found = measure([MI300X], ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert found["message"].startswith("meter.amdsmi cannot be imported: ")
    assert "libamd_smi.so comes with ROCm: set ROCM_PATH" in found["message"]
    assert "\n" not in found["message"]


@pytest.mark.parametrize(
    ("function", "code", "reason", "quantities"),
    [
        ("energy_count", 2, "unsupported", {"energy_J"}),
        ("energy_count", 1000, "sentinel", {"energy_J"}),
        ("power_info", 10, "permission", {"power_instant_W", "power_average_W", "power_limit_W"}),
        ("power_info", 1000, "sentinel", {"power_instant_W", "power_average_W", "power_limit_W"}),
        ("temp_metric", 1000, "sentinel", {"memory_temperature_C"}),
        ("clock_info", 1000, "sentinel", {"sm_clock_MHz", "memory_clock_MHz"}),
        ("gpu_activity", 1000, "sentinel", {"utilisation_percent"}),
        ("gpu_memory_usage", 8, "stalled", {"memory_used_bytes"}),
        ("gpu_metrics_info", 2, "unsupported", {"throttle_time_s", "throttle_mask"}),
    ],
)
def test_what_a_card_does_not_have_is_a_lack(measure, function, code, reason, quantities):
    found = measure([replace(MI300X, faults=(Fault(f"amdsmi_get_{function}", code),))])
    assert {name for name, (why, _) in found["unavailable"].items() if why == reason} >= quantities
    assert not quantities & {each["quantity"] for each in found["channels"]}
    assert len(found["channels"]) >= 8


def test_the_second_die_of_a_card_gives_no_power(measure):
    found = measure([MI300X, replace(SECOND, curve=Constant(0.0))])
    assert {each["pci"] for each in found["channels"] if each["quantity"] in ("energy_J", "power_instant_W")} == {
        BOTH[0]
    }
    assert found["unavailable"]["energy_J"] == [
        "sentinel",
        f"{BOTH[1]}: the card returned a placeholder, not a reading",
    ]


def test_the_edge_stands_in_for_the_hotspot(measure):
    found = measure([replace(MI300X, faults=(Fault("amdsmi_get_temp_metric:hotspot", 2),))])
    assert found["readings"][0]["temperature_C"] == 30
    assert "edge" in {each.get("scope") for each in found["channels"]}
    assert "temperature_C" not in found["unavailable"]


@pytest.mark.parametrize(("code", "reason"), [(31, "lost"), (34, "driver"), (8, "stalled"), (1000, "sentinel")])
def test_a_reading_that_fails_later_says_why_and_the_others_go_on(measure, code, reason):
    failing = ("energy_count", "power_info", "gpu_metrics_info")
    faults = [Fault(f"amdsmi_get_{each}", code, 5.0, 15.0) for each in failing]
    before, within, after = measure([replace(MI300X, faults=faults)], 1.0, 10.0, 20.0)["readings"]
    gone = {name for name in within if name.startswith(("energy", "power", "throttle"))}
    assert {name for name, reading in within.items() if isinstance(reading, str)} == gone
    assert {within[name] for name in gone} == {reason}
    assert all(isinstance(each, float) for row in (before, after) for each in row.values())
    assert after["energy_J"] - before["energy_J"] == pytest.approx(1900, rel=1e-3)
