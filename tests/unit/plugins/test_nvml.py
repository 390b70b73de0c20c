"""The meter of NVIDIA's cards: the real binding, on a stand-in for the driver's library."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support import nvml
from support.cards import Card, Constant, Fault, Ramp, VirtualClock, Wave, write

READER = """
import json, mmap, struct, sys
import msgspec, pynvml
from benchmarker import NoMeterError
from benchmarker.hooks.registry import load

calls, ask_fields = [], pynvml.nvmlDeviceGetFieldValues
pynvml.nvmlDeviceGetFieldValues = lambda handle, fields: calls.append(len(fields)) or ask_fields(handle, fields)
asked = json.loads(sys.argv[1])
try:
    meter = load(["meter.nvml"]).hook.make_meter(device=asked["device"])
except NoMeterError as error:
    sys.exit(msgspec.json.encode({"refused": error.unavailable}).decode())
readings = []
with open(asked["clock"], "r+b") as file:
    clock = mmap.mmap(file.fileno(), 8)
for at in asked["times"]:
    clock[:8] = struct.pack("=q", round(at * 1e9))
    readings.append(meter.read())
answer = {"channels": meter.channels, "unavailable": meter.unavailable, "readings": readings, "calls": calls}
sys.exit(msgspec.json.encode(answer).decode())
"""
SETTINGS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
A = Card(curve=Constant(300.0))
B = Card(uuid="GPU-aaaaaaaa-2222-3333-4444-555555555555", pci="0000:17:00.0", curve=Constant(500.0))
WORDS = ["thermal", "sync boost", "board limit", "reliability"]
VIOLATIONS = [f"throttle_time_s ({word})" for word in WORDS]
INSTANT, AVERAGE, TEMPERATURE = "field/186/0", "field/185/0", "nvmlDeviceGetTemperatureV"


@pytest.fixture
def ask(tmp_path):
    """Opens the meter in a process of its own, and reads at each of some times (s)."""

    def run(*cards, times=(), device="cuda", library=True, **settings):
        clock = VirtualClock(tmp_path / "clock")
        clock.set(100.0)
        write(tmp_path / "cards", cards, clock)
        base = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        found = nvml.environment(tmp_path / "cards") if library else {}
        asked = json.dumps({"clock": str(clock.path), "times": times, "device": device})
        done = subprocess.run(
            [sys.executable, "-c", READER, asked],
            env={**base, **found, **settings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return json.loads(done.stderr, object_hook=lambda found: SimpleNamespace(**found))

    return run


def key(channel):
    if what := vars(channel).get("what"):
        return f"{channel.quantity} ({what})"
    return channel.quantity if channel.domain == "gpu" else f"{channel.quantity} {channel.domain}"


def series(found, card=None):
    """Each channel's readings, by its quantity, and its domain or word where that is needed."""
    return {
        key(channel): [reading[at] for reading in found.readings]
        for at, channel in enumerate(found.channels)
        if card is None or channel.id == card.uuid
    }


def distinct(cards):
    """The same cards, each with an address and a UUID of its own."""
    return [
        replace(card, uuid=f"GPU-{at:08x}-2222-3333-4444-555555555555", pci=f"0000:{at:02x}:00.0")
        for at, card in enumerate(cards)
    ]


def faults(code, *functions, since=0.0):
    return Card(faults=[Fault(function, code, since) for function in functions])


@pytest.mark.parametrize(
    "curve",
    [Constant(250.0), Ramp(100.0, 700.0, 130.0), Wave(100.0, 600.0, 0.6, 0.2), Wave(70.0, 1000.0, 1.7, 0.005)],
    ids=["constant", "ramp", "wave", "spikes"],
)
def test_energy_and_power_follow_the_curve(ask, curve):
    refreshed = [103.0, 123.2, 133.0, 143.4]
    times = [at + 1e-6 for at in refreshed]
    found = series(ask(Card(curve=curve, window_s=0.025), times=times))
    for at, (begin, end) in enumerate(itertools.pairwise(refreshed)):
        counted = found["energy_J"][at + 1] - found["energy_J"][at]
        assert counted == pytest.approx(curve.energy(end) - curve.energy(begin), rel=1e-3)
    for quantity, window in [("power_instant_W", 0.025), ("power_average_W", 1.0)]:
        means = [(curve.energy(at) - curve.energy(at - window)) / window for at in refreshed]
        assert found[quantity] == pytest.approx(means, abs=1e-3)


def test_what_a_card_says_of_itself(ask):
    card = Card(name="NVIDIA H100", limit=650.0, temperature=40.0, temperature_rise=0.5, throttle=(0x60, 104.0, 106.0))
    found = ask(card, times=[110.0])
    assert {name: reading for name, [reading] in series(found).items()} == {
        "energy_J": 11000.0,
        "power_instant_W": 100.0,
        "power_instant_W gpu_memory": 30.0,
        "power_average_W": 100.0,
        "power_average_W gpu_memory": 30.0,
        "power_limit_W": 650.0,
        "temperature_C": 95.0,
        "memory_temperature_C": 55.0,
        "sm_clock_MHz": 1980.0,
        "memory_clock_MHz": 2619.0,
        "utilisation_percent": 87.0,
        "memory_used_bytes": 12 * 2**30,
        "throttle_mask": 0.0,
        **dict.fromkeys(VIOLATIONS, 0.0),
        "throttle_time_s (thermal)": 2.0,
    }
    assert {(each.id, each.device, each.pci) for each in found.channels} == {(A.uuid, "NVIDIA H100", "0000:65:00.0")}
    assert found.unavailable == []


def test_energies_of_all_cards_are_read_first(ask):
    quantities = [channel.quantity for channel in ask(A, B).channels]
    assert [at for at, quantity in enumerate(quantities) if quantity == "energy_J"] == [0, 1]


@pytest.mark.parametrize(
    ("visible", "order", "watts"),
    [
        (None, "", [300.0, 500.0]),
        (f"{B.uuid},{A.uuid}", "", [300.0, 500.0]),
        (B.uuid, "", [500.0]),
        ("GPU-aaaa", "", [500.0]),
        ("GPU-1, GPU-none, GPU-aaaa", "", [300.0]),
        ("0", "", [300.0, 500.0]),
        ("0", "PCI_BUS_ID", [500.0]),
        ("1", "PCI_BUS_ID", [300.0]),
        ("1,-1,0", "PCI_BUS_ID", [300.0]),
        ("0,1,7", "PCI_BUS_ID", [300.0, 500.0]),
    ],
)
def test_cards_that_cuda_sees(ask, visible, order, watts):
    settings = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = ask(A, B, times=[110.0], CUDA_DEVICE_ORDER=order, **settings)
    ids = {300.0: A, 500.0: B}
    energies = [(each.id, each.pci) for each in found.channels if each.quantity == "energy_J"]
    assert energies == [(ids[each].uuid, ids[each].pci) for each in watts]
    for each in watts:
        assert series(found, ids[each])["energy_J"] == [each * 110.0]
        assert series(found, ids[each])["power_instant_W"] == [each]


@pytest.mark.parametrize("visible", ["", "-1", "2", "GPU-", "MIG-none", "NoDevFiles"])
def test_cards_that_cuda_does_not_see(ask, visible):
    missing = ask(A, B, CUDA_VISIBLE_DEVICES=visible).refused
    assert (missing.reason, missing.message) == ("unsupported", f"CUDA_VISIBLE_DEVICES={visible} names none of 2 GPUs")


@pytest.mark.parametrize("entry", [f"MIG-{B.uuid[4:]}", f"MIG-{B.uuid}/1/0", "GPU-aaaa"])
def test_a_mig_instance_means_the_whole_card(ask, entry):
    found = ask(A, replace(B, mig=1), times=[110.0], CUDA_VISIBLE_DEVICES=entry)
    assert {channel.id for channel in found.channels} == {B.uuid}
    assert {channel.scope for channel in found.channels} == {"whole card, which MIG instances share"}
    assert {channel.shared for channel in found.channels} == {True}
    assert series(found)["energy_J"] == [55000.0]
    assert [missing.what for missing in found.unavailable] == ["utilisation_percent"]


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (9, "driver", "modprobe nvidia"),
        (12, "driver", "LD_LIBRARY_PATH"),
        (18, "driver", "reboot"),
        (4, "permission", "/dev/nvidia"),
        (28, "unsupported", "28"),
        (999, "driver", "999"),
    ],
)
def test_a_library_that_does_not_start(ask, code, reason, remedy):
    missing = ask(faults(code, "nvmlInit_v2")).refused
    assert missing.reason == reason
    assert remedy in missing.message
    assert "\n" not in missing.message


def test_nothing_to_read(ask):
    assert ask(A, library=False, LD_LIBRARY_PATH="/nowhere").refused.reason == "driver"
    assert ask().refused.message == "NVML finds no GPU"
    assert ask(A, device="cpu").refused.reason == "unsupported"
    assert ask(faults(15, "nvmlDeviceGetHandleByIndex_v2")).refused.reason == "lost"
    assert ask(A, device=None).channels


def test_one_card_that_cannot_be_opened(ask):
    found = ask(faults(4, "nvmlDeviceGetHandleByIndex_v2"), B)
    assert {channel.id for channel in found.channels} == {B.uuid}
    assert [(missing.what, missing.reason) for missing in found.unavailable] == [
        ("GPU 0 in NVML's order", "permission")
    ]


LACKS = [
    (4, "nvmlDeviceGetTotalEnergyConsumption", ["energy_J"], "permission"),
    (3, "nvmlDeviceGetTotalEnergyConsumption", ["energy_J"], "unsupported"),
    (nvml.SENTINEL, "nvmlDeviceGetTotalEnergyConsumption", ["energy_J"], "sentinel"),
    (3, INSTANT, ["power_instant_W"], "unsupported"),
    (nvml.SENTINEL, AVERAGE, ["power_average_W"], "sentinel"),
    (10, "nvmlDeviceGetEnforcedPowerLimit", ["power_limit_W"], "stalled"),
    (nvml.SENTINEL, TEMPERATURE, ["temperature_C"], "sentinel"),
    (999, "nvmlDeviceGetClockInfo", ["sm_clock_MHz", "memory_clock_MHz"], "driver"),
    (nvml.SENTINEL, "nvmlDeviceGetUtilizationRates", ["utilisation_percent"], "sentinel"),
    (nvml.SENTINEL, "nvmlDeviceGetMemoryInfo", ["memory_used_bytes"], "sentinel"),
    (nvml.SENTINEL, "nvmlDeviceGetCurrentClocksEventReasons", ["throttle_mask"], "sentinel"),
    (nvml.SENTINEL, "nvmlDeviceGetViolationStatus", VIOLATIONS, "sentinel"),
    (3, "field/82/0", ["memory_temperature_C"], "unsupported"),
    (3, "field/186/2", ["power_instant_W gpu_memory"], "unsupported"),
]
"""What a function fails with, and the quantities that are then missing, and why."""


def test_quantities_that_a_card_lacks(ask):
    full = set(series(ask(A)))
    cards = distinct(faults(code, function) for code, function, _, _ in LACKS)
    found = ask(*cards)
    for card, (_, function, lacking, reason) in zip(cards, LACKS, strict=True):
        assert full - set(series(found, card)) == set(lacking), function
        told = [
            (missing.what, missing.reason)
            for missing in found.unavailable
            if missing.message.startswith(f"{card.pci}: ")
        ]
        rare = function in ("field/82/0", "field/186/2")
        assert told == ([] if rare else [(what, reason) for what in lacking]), function


def test_quantities_that_a_card_loses(ask):
    cards = distinct(faults(code, function, since=105.0) for code, function, _, _ in LACKS)
    found = ask(*cards, times=[104.0, 106.0])
    for card, (_, function, lacking, reason) in zip(cards, LACKS, strict=True):
        readings = series(found, card)
        assert all(isinstance(before, float) for before, _ in readings.values())
        assert {name: after for name, (_, after) in readings.items() if isinstance(after, str)} == dict.fromkeys(
            lacking, reason
        ), function


def test_all_fields_are_had_with_one_call(ask):
    found = ask(faults(4, "nvmlDeviceGetFieldValues", since=105.0), times=[104.0, 106.0])
    failed = {name for name, [_, reading] in series(found).items() if reading == "permission"}
    powers = {"power_instant_W", "power_average_W"}
    assert failed == {*powers, *(f"{name} gpu_memory" for name in powers), "memory_temperature_C"}
    assert found.calls == [7, 5, 5]


def test_a_card_that_is_lost_stays_lost(ask):
    lost = replace(A, faults=[Fault("nvmlDeviceGetEnforcedPowerLimit", 15, 105.0, 107.0)])
    found = ask(lost, B, times=[104.0, 106.0, 108.0])
    for name, readings in series(found, A).items():
        assert isinstance(readings[0], float)
        assert readings[2] == "lost", name
    assert all(isinstance(each, float) for readings in series(found, B).values() for each in readings)
    found = ask(faults(15, "nvmlDeviceGetEnforcedPowerLimit"), B)
    assert {channel.id for channel in found.channels} == {B.uuid}
    assert [(missing.what, missing.reason) for missing in found.unavailable] == [(f"GPU {A.pci}", "lost")]


def test_a_card_without_an_address(ask):
    found = ask(faults(3, "nvmlDeviceGetPciInfo_v3", AVERAGE))
    assert not [channel for channel in found.channels if "pci" in vars(channel)]
    assert found.unavailable[0].message.startswith(f"{A.uuid}: ")


MASKS = [
    (0x001, "idle", None),
    (0x002, "clocks set", None),
    (0x004, "power cap", None),
    (0x008, "hardware", None),
    (0x010, "sync boost", "sync boost"),
    (0x020, "thermal", "thermal"),
    (0x040, "thermal", "thermal"),
    (0x080, "power brake", None),
    (0x100, "display clock", None),
    (0x200, "board limit", "board limit"),
    (0x400, "reliability", "reliability"),
    (0x048, "hardware, thermal", "thermal"),
]
"""Masks, what they say in words, and the policy whose violation is then timed."""


@pytest.mark.parametrize("missing", [[], ["nvmlDeviceGetCurrentClocksEventReasons"]], ids=["events", "throttle"])
def test_why_it_is_throttled(ask, missing):
    cards = distinct(replace(faults(13, *missing), throttle=(mask, 102.0, 104.5)) for mask, _, _ in MASKS)
    found = ask(*cards, times=[101.0, 103.0, 110.0])
    for card, (mask, words, timed) in zip(cards, MASKS, strict=True):
        readings = series(found, card)
        assert readings["throttle_mask"] == [0.0, mask, 0.0]
        [bits] = [
            vars(each.bits) for each in found.channels if (each.id, each.quantity) == (card.uuid, "throttle_mask")
        ]
        assert ", ".join(word for bit, word in bits.items() if int(bit) & mask) == words
        rose = {name: readings[name] for name in VIOLATIONS if readings[name][-1]}
        assert rose == ({f"throttle_time_s ({timed})": [0.0, 1.0, 2.5]} if timed else {})


SHORT, WHOLE, SECOND, NOTHING = (100, 25), (100, 100), (100, 1000), (None, None)
KNOWN = [
    (4, "P100", (20, 10), None, "power_instant_W"),
    (5, "V100", (20, 10), None, "power_instant_W"),
    (6, "T4", WHOLE, None, "power_instant_W"),
    (7, "A100", SHORT, None, "power_instant_W"),
    (7, "A40", WHOLE, SECOND, "power_average_W"),
    (8, "L40S", WHOLE, SECOND, "power_average_W"),
    (9, "H100", SHORT, SECOND, "power_average_W"),
    (10, "B200", NOTHING, NOTHING, "power_average_W"),
    (99, "X1", NOTHING, NOTHING, None),
]
"""Generations, update and window (ms) of their instant and average power, and what nvmlDeviceGetPowerUsage is."""


def of_generations(**more):
    curve = Ramp(100.0, 400.0, 300.0)
    return distinct(Card(generation=each, name=name, curve=curve, **more) for each, name, _, _, _ in KNOWN)


def test_what_is_known_of_a_generation(ask):
    cards = of_generations()
    found = ask(*cards)
    for card, (_, name, instant, average, _) in zip(cards, KNOWN, strict=True):
        for channel in [each for each in found.channels if each.id == card.uuid]:
            known = {"power_instant_W": instant, "power_average_W": average} if channel.domain == "gpu" else {}
            update_ms, window_ms = known.get(channel.quantity, NOTHING)
            said = [vars(channel).get(each) for each in ("update_ms", "window_ms", "accuracy_percent")]
            assert said == [update_ms, window_ms, update_ms and 5], (name, channel.quantity)
        unavailable = [missing.what for missing in found.unavailable if missing.message.startswith(card.pci)]
        assert unavailable == ([] if average else ["power_average_W"])


def test_power_usage_stands_in_for_the_fields(ask):
    cards = of_generations(faults=[Fault("nvmlDeviceGetFieldValues", 13)])
    found = ask(*cards, times=[110.0 + 1e-6])
    exact = {"power_instant_W": [209.95], "power_average_W": [209.5]}
    for card, (_, name, _, _, usage) in zip(cards, KNOWN, strict=True):
        readings = series(found, card)
        assert {each: readings[each] for each in exact if each in readings} == (
            {usage: exact[usage]} if usage else {}
        ), name
        unavailable = {missing.what for missing in found.unavailable if missing.message.startswith(card.pci)}
        assert unavailable == exact.keys() - {usage}


def test_domains_of_a_module(ask):
    found = series(ask(Card(name="NVIDIA GH200"), times=[110.0]))
    assert found["power_instant_W module"] == [150.0]
    assert found["power_average_W module"] == [150.0]
    assert found["power_instant_W gpu_memory"] == [30.0]


def test_a_driver_that_does_not_know_scopes(ask):
    card = Card(name="NVIDIA GH200", faults=[Fault("scopes", 1)])
    assert {channel.domain for channel in ask(card).channels} == {"gpu"}


def test_temperature_by_its_older_name(ask):
    assert series(ask(faults(13, TEMPERATURE), times=[110.0]))["temperature_C"] == [40.0]
    assert "temperature_C" not in series(ask(faults(13, TEMPERATURE, "nvmlDeviceGetTemperature")))
