"""RAPL's counters, read from trees as Linux shows them."""

import os
import shutil

import pytest
from support import sysfs

from benchmarker import NoMeterError
from benchmarker.hooks.registry import load

SERVER = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMARKER_SYSFS", str(tmp_path))
    return tmp_path


def make_meter(device="cpu"):
    return load(["meter.rapl"]).hook.make_meter(device=device)


def refused(device="cpu"):
    with pytest.raises(NoMeterError) as caught:
        make_meter(device)
    assert "\n" not in str(caught.value)
    return caught.value.unavailable


def found(meter):
    return {channel.id: (channel.domain, channel.device) for channel in meter.channels}


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_a_server_with_two_sockets(root, device):
    sysfs.powercap(root, SERVER)
    meter = make_meter(device)
    assert found(meter) == {
        "package-0": ("package", "intel-rapl:0"),
        "dram-0": ("dram", "intel-rapl:0:1"),
        "package-1": ("package", "intel-rapl:1"),
        "dram-1": ("dram", "intel-rapl:1:0"),
        "psys": ("psys", "intel-rapl:2"),
    }
    assert {channel.quantity for channel in meter.channels} == {"energy_J"}
    assert not meter.unavailable


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        pytest.param(
            {"intel-rapl-mmio:0": "package-0", "intel-rapl:0": "package-0", "intel-rapl:0:0": "uncore"},
            {"package-0": ("package", "intel-rapl:0")},
            id="mmio is the same package",
        ),
        pytest.param(
            {"intel-rapl-mmio:0": "package-0"}, {"package-0": ("package", "intel-rapl-mmio:0")}, id="mmio alone"
        ),
        pytest.param(
            {"intel-rapl:0": "package-0-die-0", "intel-rapl:1": "package-0-die-1", "intel-rapl:1:0": "dram"},
            {
                "package-0-die-0": ("package", "intel-rapl:0"),
                "package-0-die-1": ("package", "intel-rapl:1"),
                "dram-0-die-1": ("dram", "intel-rapl:1:0"),
            },
            id="dies",
        ),
        pytest.param(
            {"intel-rapl:a": "package-10", "intel-rapl:9": "package-9", "dtpm:0": "package-3"},
            {"package-9": ("package", "intel-rapl:9"), "package-10": ("package", "intel-rapl:a")},
            id="zones are numbered in hexadecimal",
        ),
        pytest.param(
            {"intel-rapl:0": "psys", "intel-rapl:1": "psys-1"},
            {"psys": ("psys", "intel-rapl:0"), "psys-1": ("psys", "intel-rapl:1")},
            id="a psys a socket",
        ),
    ],
)
def test_each_counter_once(root, zones, expected):
    sysfs.powercap(root, zones)
    channels = found(make_meter())
    assert list(channels.items()) == list(expected.items())


def test_a_link_to_a_zone_is_no_other_zone(root):
    sysfs.powercap(root, {"intel-rapl:0": "package-0"})
    (root / "class" / "powercap" / "intel-rapl:1").symlink_to("intel-rapl:0")
    assert list(found(make_meter())) == ["package-0"]


def test_counters_wrap_where_the_kernel_says_to_the_microjoule(root):
    sysfs.powercap(root, {"intel-rapl:0": "package-0"})
    (channel,) = make_meter().channels
    assert channel.wraps_at == 262143.328851
    assert round(channel.wraps_at * 1e6) == sysfs.RANGE_UJ + 1
    assert channel.update_ms == 1.0


def test_readings_are_the_counters_as_they_stand(root):
    sysfs.powercap(root, SERVER)
    meter = make_meter()
    sysfs.zone_file(root, "intel-rapl:0").write_text(f"{sysfs.RANGE_UJ}\n")
    sysfs.zone_file(root, "intel-rapl:1:0").write_text("1\n")
    assert meter.read() == [262143.32885, 0.0, 0.0, 0.000001, 0.0]
    sysfs.zone_file(root, "intel-rapl:0").write_text("7\n")
    assert meter.read()[0] == 0.000007


def test_what_happens_in_the_middle_is_a_reason(root, monkeypatch):
    sysfs.powercap(root, SERVER)
    meter = make_meter()
    sysfs.zone_file(root, "intel-rapl:0").unlink()
    sysfs.zone_file(root, "intel-rapl:0:1").write_text("-1\n")
    sysfs.zone_file(root, "intel-rapl:1").write_text("")
    sysfs.deny(monkeypatch, sysfs.zone_file(root, "intel-rapl:1:0"))
    assert meter.read() == ["lost", "sentinel", "sentinel", "permission", 0.0]
    shutil.rmtree(root / "devices")
    assert set(meter.read()) == {"lost", "permission"}


def test_unreadable_counters_are_named_with_the_remedy(root, monkeypatch):
    sysfs.powercap(root, {"intel-rapl:0": "package-0", "intel-rapl:0:1": "dram"})
    counters = [sysfs.zone_file(root, zone) for zone in ("intel-rapl:0", "intel-rapl:0:1")]
    sysfs.deny(monkeypatch, *counters)
    missing = refused()
    assert (missing.what, missing.reason) == ("", "permission")
    assert f"chmod a+r {counters[0]} {counters[1]}" in missing.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what no one may read")
@pytest.mark.parametrize("path", ["intel-rapl:0/energy_uj", ""])
def test_what_is_for_root_alone(root, path):
    sysfs.powercap(root, {"intel-rapl:0": "package-0"})
    closed = root / "class" / "powercap" / path
    mode = closed.stat().st_mode
    closed.chmod(0)
    assert refused().reason == "permission"
    closed.chmod(mode)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "unsupported"),
        (lambda path: path.write_text(""), "driver"),
        (lambda path: path.write_text("12 J"), "driver"),
        (lambda path: (path.unlink(), path.mkdir()), "driver"),
    ],
    ids=["missing", "empty", "garbled", "unreadable"],
)
def test_one_bad_counter_is_a_lack_and_the_others_are_read(root, spoil, reason):
    sysfs.powercap(root, {"intel-rapl:0": "package-0", "intel-rapl:0:1": "dram"})
    spoil(sysfs.zone_file(root, "intel-rapl:0:1"))
    meter = make_meter()
    assert list(found(meter)) == ["package-0", *(["dram-0"] if reason != "unsupported" else [])]
    assert meter.read()[0] == 0.0
    assert all(isinstance(reading, str) for reading in meter.read()[1:])
    (missing,) = meter.unavailable
    assert (missing.what, missing.reason) == ("dram-0", reason)
    assert str(sysfs.zone_file(root, "intel-rapl:0:1")) in missing.message


def test_permission_is_said_before_what_cannot_be_mended(root, monkeypatch):
    sysfs.powercap(root, {"intel-rapl:0": "package-0", "intel-rapl:0:1": "dram"})
    sysfs.zone_file(root, "intel-rapl:0").write_text("")
    sysfs.deny(monkeypatch, sysfs.zone_file(root, "intel-rapl:0:1"))
    assert refused().reason == "permission"
    assert str(sysfs.zone_file(root, "intel-rapl:0")) not in refused().message


@pytest.mark.parametrize(
    ("spoil", "reason"), [(lambda path: path.unlink(), "unsupported"), (lambda path: path.write_text("0\n"), "driver")]
)
def test_without_a_range_a_counter_has_no_wrap_and_that_is_said(root, spoil, reason):
    sysfs.powercap(root, {"intel-rapl:0": "package-0"})
    spoil(sysfs.zone_file(root, "intel-rapl:0", "max_energy_range_uj"))
    meter = make_meter()
    assert meter.channels[0].wraps_at is None
    assert [(missing.what, missing.reason) for missing in meter.unavailable] == [("package-0: wraps_at", reason)]


def test_nothing_here(root):
    assert refused().reason == "unsupported"
    assert "BENCHMARKER_SYSFS" in refused().message
    (root / "class" / "powercap").mkdir(parents=True)
    assert "modprobe intel_rapl_msr" in refused().message
    sysfs.powercap(root, {"intel-rapl:0": "core"})
    assert refused("cuda").reason == "unsupported"


def test_a_container_hides_what_the_links_lead_to(root):
    sysfs.powercap(root, SERVER)
    shutil.rmtree(root / "devices" / "virtual" / "powercap")
    assert refused().reason == "permission"
    assert "BENCHMARKER_SYSFS" in refused().message


def test_the_tree_is_sys_unless_told(monkeypatch):
    monkeypatch.delenv("BENCHMARKER_SYSFS", raising=False)
    from benchmarker_plugins.meters.sysfs import root

    assert str(root()) == "/sys"
