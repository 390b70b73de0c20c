"""Boards' meters, read from trees as Linux shows them."""

import pytest
from support import sysfs

from benchmarker import NoMeterError
from benchmarker.hooks.registry import load
from benchmarker_plugins.meters import hwmon

NO_POWER_UW = 0xFFFFFFFF * 1000


class Clock:
    """Time that passes only in sleep."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMARKER_SYSFS", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(hwmon, "time", clock)
    return clock


def make_meter(device="cpu"):
    return load(["meter.hwmon"]).hook.make_meter(device=device)


def refused():
    with pytest.raises(NoMeterError) as caught:
        make_meter()
    assert "\n" not in str(caught.value)
    return caught.value.unavailable


def grace(root, first, socket, **watts):
    """Meters of a Grace socket, as chips from `first`; returns their files by the first word of their label."""
    return {
        word: sysfs.power_meter(
            root,
            first + place,
            {"average": int(power * 1e6), "average_interval": 50, "oem_info": f"{word} Power Socket {socket}"},
        )
        / "power1_average"
        for place, (word, power) in enumerate(watts.items())
    }


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_grace_hopper(root, clock, device):
    grace(root, 1, 0, Module=612.5, Grace=210.25, CPU=150, SysIO=30)
    meter = make_meter(device)
    assert [(channel.id, channel.domain, channel.quantity, channel.device) for channel in meter.channels] == [
        ("module-0", "module", "power_average_W", "ACPI000D:01"),
        ("package-0", "package", "power_average_W", "ACPI000D:02"),
    ]
    assert meter.channels[1].scope == "processor and its memory"
    assert {channel.window_ms for channel in meter.channels} == {50.0}
    assert meter.read() == [612.5, 210.25]


@pytest.mark.parametrize(
    ("watts", "scope"), [({"CPU": 1, "Grace": 2}, "processor and its memory"), ({"CPU": 1, "SysIO": 3}, hwmon.RAIL)]
)
def test_the_cores_rail_is_a_part_of_grace(root, watts, scope):
    grace(root, 0, 1, **watts)
    (channel,) = make_meter().channels
    assert (channel.id, channel.scope) == ("package-1", scope)


def test_an_unlabelled_meter_sees_the_platform(root):
    sysfs.power_meter(root, 0, {"average": 345_000_000, "input": 1, "oem_info": "", "average_interval": 0})
    sysfs.power_meter(root, 1, {"input": 5_500_000}, in_chip=True)
    sysfs.chip(root, 2, "nvme", {"power1_average": 1_000_000})
    sysfs.chip(root, 3, "amdgpu", {"power1_average": 1_000_000})
    meter = make_meter()
    assert [(channel.id, channel.domain, channel.quantity, channel.window_ms) for channel in meter.channels] == [
        ("ACPI000D:00", "psys", "power_average_W", None),
        ("ACPI000D:01", "psys", "power_instant_W", None),
    ]
    assert meter.channels[0].scope == "the platform, by the ACPI power meter"
    assert meter.read() == [345.0, 5.5]


def test_amd_energy_has_sockets(root):
    sysfs.power_meter(root, 0, {"average": 400_000_000})
    files = {"energy1_label": "Ecore000", "energy2_label": "Esocket0", "energy3_label": "Esocket1"}
    counters = {"energy1_input": 1, "energy2_input": 123_456_789, "energy3_input": 0}
    sysfs.chip(root, 4, "amd_energy", files | counters)
    meter = make_meter()
    assert [(channel.id, channel.domain, channel.quantity) for channel in meter.channels] == [
        ("package-0", "package", "energy_J"),
        ("package-1", "package", "energy_J"),
        ("ACPI000D:00", "psys", "power_average_W"),
    ]
    assert meter.read() == [123.456789, 0.0, 400.0]


@pytest.mark.parametrize("shared", [True, False], ids=["one value a socket", "one value a meter"])
def test_meters_of_a_socket_are_not_mistaken_for_each_other(root, clock, monkeypatch, shared):
    """Both ways in which Grace's firmware answers within 50 ms of its last answer."""
    truth = {}
    for socket, scale in ((0, 1), (1, 10)):
        files = grace(root, 2 * socket, socket, Module=500 * scale, Grace=200 * scale)
        truth |= {
            path.resolve(): (socket, power * scale) for path, power in zip(files.values(), (500, 200), strict=True)
        }
    asked: dict[int, float] = {}
    answers: dict[object, float] = {}

    def firmware(path):
        socket, power = truth[path.resolve()]
        key = socket if shared else path
        if clock.now - asked.get(socket, 0.0) > 0.05:
            asked[socket], answers[key] = clock.now, power
        return answers.get(key, 0.0)

    monkeypatch.setattr(hwmon.sysfs, "reading", firmware)
    meter = make_meter()
    assert [channel.id for channel in meter.channels] == ["module-0", "module-1", "package-0", "package-1"]
    for _ in range(40):
        assert meter.read() == [500, 5000, 200, 2000]
        clock.sleep(0.049)


def test_a_value_is_new_at_the_next_turn_at_the_latest(root, clock):
    files = grace(root, 0, 0, Module=500, Grace=200)
    meter = make_meter()
    for path, power in zip(files.values(), (600, 300), strict=True):
        path.write_text(f"{power}000000\n")
    seen = []
    for _ in range(4):
        clock.sleep(0.05)
        seen.append(meter.read())
    assert seen[0] == [500, 200]
    assert seen[-1] == [600, 300]


@pytest.mark.parametrize("number", [0, NO_POWER_UW, -5, ""])
def test_numbers_that_stand_for_none(root, number):
    place = sysfs.power_meter(root, 0, {"average": 1})
    meter = make_meter()
    (place / "power1_average").write_text(f"{number}\n")
    assert meter.read() == ["sentinel"]
    (place / "power1_average").unlink()
    assert meter.read() == ["lost"]


def test_unreadable_counters_are_named_with_the_remedy(root, monkeypatch):
    place = sysfs.chip(root, 0, "amd_energy", {"energy1_label": "Esocket0", "energy1_input": 1})
    counter = root / "class" / "hwmon" / place.name / "energy1_input"
    sysfs.deny(monkeypatch, counter)
    missing = refused()
    assert missing.reason == "permission"
    assert f"chmod a+r {counter}" in missing.message
    sysfs.power_meter(root, 1, {"average": 1_000_000})
    meter = make_meter()
    assert meter.read() == ["permission", 1.0]
    assert [(missing.what, missing.reason) for missing in meter.unavailable] == [("package-0", "permission")]


def test_nothing_here(root):
    assert refused().reason == "unsupported"
    assert "BENCHMARKER_SYSFS" in refused().message
    sysfs.chip(root, 0, "nouveau", {"power1_input": 1_000_000})
    sysfs.power_meter(root, 1, {"oem_info": "measures nothing"})
    assert refused().reason == "unsupported"
    assert "modprobe acpi_power_meter" in refused().message
