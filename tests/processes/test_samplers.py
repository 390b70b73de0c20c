"""Sampler processes, with a meter that does as it is told."""

import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarker.api.errors import UserError
from benchmarker.machine import counters
from benchmarker.power import samplers
from benchmarker.power.sampler_client import SamplerClient
from benchmarker.power.samplers import Sampling, meters, probe

METER = """
    import ctypes, os, time
    from benchmarker import Channel, Unavailable, Meter, NoMeterError, hookimpl

    started = time.monotonic()
    def fault(name):
        kind, _, after = os.environ.get("FAULT", "").partition("@")
        return kind == name and time.monotonic() - started >= float(after or 0)

    @hookimpl
    def make_meter(device):
        print("a library says hello")
        if fault("absent"):
            raise NoMeterError("permission", "not for you; run as root")
        if fault("hang"):
            time.sleep(600)
        if fault("crash"):
            ctypes.string_at(0)
        return Told()

    class Told(Meter):
        channels = (
            Channel(id="x", domain="package", quantity="energy_J", wraps_at=50.0),
            Channel(id="x", domain="package", quantity="temperature_C"),
        )
        unavailable = (Unavailable("dram", "unsupported", "there is none"),)
        def read(self):
            if fault("stall"):
                time.sleep(600)
            if fault("busy"):
                until = time.process_time() + 0.05
                while time.process_time() < until:
                    pass
            if fault("bug"):
                raise RuntimeError("the meter is broken")
            if fault("few"):
                return (1.0,)
            if fault("none"):
                return (None, 1.0)
            if fault("nan"):
                return (float("nan"), 1)
            return (100 * (time.monotonic() - started) % 50.0, 55.0)
"""


@pytest.fixture(autouse=True)
def told(distribution, tmp_path, monkeypatch):
    distribution("told", {"meter.told": "told.meter", "meter.broken": "told.broken"}, FILES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


FILES = {"__init__.py": "", "meter.py": METER, "broken.py": "import no_such_library_anywhere"}


def gather(hz=50.0, seconds=0.5, **environment):
    with Sampling(["told"], "cpu", hz, environment) as running:
        time.sleep(seconds)
        return running.gather()[0]


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_names_of_meters():
    assert {"rapl", "nvml", "told"} <= {*meters("auto")} == {*meters("passive")}
    assert meters("none") == []
    assert meters("rapl, told,rapl") == ["rapl", "told"]
    for wrong in ("tolt", "auto,rapl", "none,auto", ","):
        with pytest.raises(UserError, match=r"told|cannot be combined with other names|names no meter"):
            meters(wrong)


def test_each_meter_is_found_or_says_why_not():
    found = probe(["told", "broken", "rapl"], "cpu", {"BENCHMARKER_SYSFS": "/nowhere"})
    assert [channel.quantity for channel in found["told"].channels] == ["energy_J", "temperature_C"]
    assert found["told"].unavailable[0].text == "dram: unsupported: there is none"
    assert found["broken"].unavailable[0].text.startswith("library_missing: meter.broken needs the module 'no_such")
    assert found["rapl"].unavailable[0].reason == "unsupported"
    assert (
        probe(["told"], "cpu", {"FAULT": "absent"})["told"].unavailable[0].text
        == "permission: not for you; run as root"
    )


def test_a_meter_that_hangs_or_crashes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(samplers, "ANSWER_S", 2.0)
    start = time.monotonic()
    assert probe(["told"], "cpu", {"FAULT": "hang"})["told"].unavailable[0].text == "stalled: no answer within 2 s"
    assert time.monotonic() - start < 4
    found = probe(["broken", "told", "rapl"], "cpu", {"FAULT": "crash", "BENCHMARKER_SYSFS": "/nowhere"})
    assert [found[name].unavailable[0].reason for name in ("broken", "told", "rapl")] == [
        "library_missing",
        "driver",
        "unsupported",
    ]
    assert found["told"].unavailable[0].text.startswith("driver: its process ended by SIGSEGV")


def test_it_samples_at_its_rate_until_it_is_told_to_stop():
    got = gather(hz=50.0, seconds=1.0)
    ticks = [sample for sample in got.samples if not sample.mark]
    assert 40 <= len(ticks) <= 60
    assert all(sample.late_ns >= 0 for sample in ticks)
    assert all(0 <= sample.readings[0] < 50 and sample.readings[1] == 55.0 for sample in ticks)
    assert [missing.what for missing in got.unavailable] == ["dram"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("stall@0.5", "stalled: it did not answer for 0.2 s, and was ended"),
        ("bug@0.5", "lost: its process ended with status 1: RuntimeError: the meter is broken"),
        ("few@0.5", "lost: its process ended with status 1: ValueError: 1 readings of 2 channels"),
        ("none@0.5", "lost: its process ended with status 1: TypeError: must be real number, not NoneType"),
    ],
)
def test_a_sampler_that_fails_in_the_middle_keeps_what_it_read(fault, text, monkeypatch):
    monkeypatch.setattr(samplers, "STOP_S", 0.2)
    got = gather(seconds=2.5, FAULT=fault)
    assert got.unavailable[-1].text == text
    assert got.samples


def test_what_is_no_number_stands_for_none():
    assert gather(FAULT="nan").samples[0].readings == ("sentinel", 1.0)


def test_the_edges_are_read_at_once():
    with Sampling(["told"], "cpu", 5.0, {}) as running, closing(SamplerClient(running.links())) as client:
        assert client.reads_power
        for name in ("begin", "end"):
            before = time.monotonic_ns()
            sample = client.mark(name)["told"]
            assert before <= sample.time_ns <= time.monotonic_ns()
            time.sleep(0.1)
        got = running.gather()[0]
    assert [sample.mark for sample in got.samples if sample.mark] == ["begin", "end"]


def test_what_a_sampler_takes_of_the_processor_is_not_other_work():
    with (
        Sampling(["told"], "cpu", 10.0, {"FAULT": "busy"}) as running,
        closing(SamplerClient(running.links())) as client,
    ):
        start = counters.snapshot(client.pids)
        time.sleep(2)
        end = counters.snapshot(client.pids)
    taken_s = end.samplers_s - start.samplers_s
    assert taken_s > 0.2
    uncounted = counters.between(replace(start, samplers_s=0.0), replace(end, samplers_s=0.0))
    less = uncounted.other_busy_cores - counters.between(start, end).other_busy_cores
    assert less == pytest.approx(taken_s / uncounted.duration_s)


def test_power_and_temperature_for_preheat():
    with Sampling(["told"], "cpu", 5.0, {}) as running, closing(SamplerClient(running.links())) as client:
        assert client.gauge().power_W is None
        for _ in range(3):  # across a wrap, too
            time.sleep(0.25)
            now = client.gauge()
            assert now.power_W == pytest.approx(100, rel=0.05)
            assert now.temperature_C == 55.0


def test_a_sampler_that_hangs_holds_the_edges_up_once(monkeypatch):
    monkeypatch.setattr("benchmarker.power.sampler_client.ANSWER_S", 0.3)
    monkeypatch.setattr(samplers, "STOP_S", 0.2)
    stalling = {"FAULT": "stall@0.3"}
    with Sampling(["told"], "cpu", 5.0, stalling) as running, closing(SamplerClient(running.links())) as client:
        time.sleep(0.5)
        start = time.monotonic()
        assert client.mark("begin") == {}
        assert not client.reads_power
        assert client.mark("end") == {}
        assert time.monotonic() - start < 0.6
        running.gather()


def test_nothing_is_left_behind():
    with Sampling(["told"], "cpu", 5.0, {}) as running:
        pids = [sampler.process.pid for sampler in running._samplers]
        held = descriptors()
    assert descriptors() < held
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
