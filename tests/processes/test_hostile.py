"""Plugins that send nonsense, hold on to pipes or flood them: their trial fails and says why, all others go on."""

import json
import time

import pytest
from support.toy import install

from benchmarker.hooks import registry
from benchmarker.power import samplers
from benchmarker.records import store

FRAMEWORK = """
    import os, sys, time
    from benchmarker import Device, Framework, FrameworkInfo, hookimpl

    HOW = os.environ.get("HOSTILE", "")

    @hookimpl
    def describe_framework():
        device = Device("cpu", 5 if HOW == "name" else "odd", ("fp32",))
        libraries = {"odd": 1} if HOW == "libraries" else {}
        return FrameworkInfo("hostile", "1.0", ("cpu",) if HOW == "devices" else (device,), "never", libraries)

    @hookimpl
    def make_framework():
        return Hostile()

    def event_pipes():
        for descriptor in range(3, 64):
            try:
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                    yield descriptor
            except OSError:
                pass

    class Hostile(Framework):
        def synchronize(self, result): pass
        def is_finite(self, result): return True
        def threads(self):
            return {"threads -": -1, "threads float": 1.5, "threads text": "two", "threads huge": 10**400}.get(HOW, 1)
        def settings(self):
            if HOW == "stray":
                for pipe in event_pipes(): os.write(pipe, b"hello\\x1b[31m\\n")
            if HOW == "list":
                for pipe in event_pipes(): os.write(pipe, b"[1, 2]\\n")
            if HOW == "unknown":
                for pipe in event_pipes(): os.write(pipe, b'{"type": "Done", "surprise": 1}\\n')
            if HOW == "done":
                for pipe in event_pipes(): os.write(pipe, b'{"type": "Done"}\\n')
                os._exit(0)
            if HOW == "closed":
                for pipe in event_pipes(): os.close(pipe)
                time.sleep(60)
            if HOW == "long":
                for pipe in event_pipes():
                    for _ in range(100): os.write(pipe, b"x" * 2**20)
            if HOW == "child" and os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            if HOW == "flood":
                sys.stderr.write("x" * 20 * 2**20)
            return {"fast": True} if HOW == "settings" else {}
        def peak_memory_bytes(self):
            return {"memory -": -5, "memory text": "much", "memory float": 0.5}.get(HOW)
"""
WORKLOAD = """
    from benchmarker import Support, Workload, hookimpl

    @hookimpl
    def describe_workload():
        return Support({"inference": ("fp32",)})

    @hookimpl
    def build_workload(data):
        return Workload(lambda: 1.0, lambda result: {"x": data.batches[0]["x"]})
"""
RUN = ("run", "--problem=nap", "--power=none", "--blocks=3", "--ms=1", "--results=r")


@pytest.fixture
def hostile(cli, tmp_path, monkeypatch, toy_folder):
    entries = {"framework.hostile": "hostile", "workload.nap.hostile": "hostile.nap"}
    install(tmp_path / "site", "hostile", entries, {"__init__.py": FRAMEWORK, "nap.py": WORKLOAD})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", f"{toy_folder}:{tmp_path / 'site'}")
    registry.scan.cache_clear()

    def run(how, *words):
        return cli(*RUN, "--framework=hostile", *words, env={"HOSTILE": how})

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("settings", "types.settings[...]: Expected `str`, got `bool`"),
        ("threads -", "threads: Expected `int` >= 0"),
        pytest.param("threads float", "threads: Expected `int | null`, got `float`", marks=pytest.mark.slow),
        pytest.param("threads text", "threads: Expected `int | null`, got `str`", marks=pytest.mark.slow),
        pytest.param("threads huge", "threads: Expected `int` <= 9223372036854775807", marks=pytest.mark.slow),
        ("memory -", "memory.device_peak_bytes: Expected `int` >= 0"),
        pytest.param(
            "memory text", "memory.device_peak_bytes: Expected `int | null`, got `str`", marks=pytest.mark.slow
        ),
        pytest.param(
            "memory float", "memory.device_peak_bytes: Expected `int | null`, got `float`", marks=pytest.mark.slow
        ),
        ("stray", r"a line that is not an event: hello\x1b[31m"),
        ("list", "an event: Expected `object`, got `array`"),
        ("unknown", "an event: Object contains unknown field `surprise`"),
        ("long", "a line of more than 64 MiB"),
    ],
)
def test_what_is_not_valid_fails_that_trial_alone(hostile, tmp_path, how, message):
    done = hostile(how, "--framework=toy,hostile", "--trials=2")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    records, faults = store.read([tmp_path / "r"])
    assert faults == []
    assert sorted((each.case.framework, each.status) for each in records) == [
        *[("hostile", "failed")] * 2,
        *[("toy", "ok")] * 2,
    ]
    said = {each.error.message for each in records if each.error}
    assert said == {f"the worker sent what is not valid: {message} (from framework.hostile or workload.nap.hostile)"}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("name", "info.devices[0].name: Expected `str`, got `int`"),
        ("libraries", "info.libraries[...]: Expected `str`, got `int`"),
        ("devices", "info.devices[0]: Expected `object`, got `str`"),
    ],
)
def test_a_description_that_is_not_valid_is_refused(hostile, how, message):
    done = hostile(how)
    where = "from framework.hostile or workload.nap.hostile"
    assert (done.returncode, done.stderr) == (
        2,
        f"benchmarker: error: hostile does not start: the worker sent what is not valid: {message} ({where})\n",
    )


def test_a_worker_that_claims_to_be_done_has_failed(hostile, tmp_path):
    assert hostile("done").returncode == 1
    (record,) = store.read([tmp_path / "r"])[0]
    message = "the measurement cannot be stored: an 'ok' record must contain at least one timed block"
    assert record.error.message.startswith(message)


def test_a_closed_event_pipe_does_not_bypass_the_time_limit(hostile, tmp_path):
    start = time.monotonic()
    assert hostile("closed", "--timeout=2").returncode == 1
    assert time.monotonic() - start < 20
    (record,) = store.read([tmp_path / "r"])[0]
    assert record.error.kind == "timeout"


def test_a_child_that_keeps_the_pipes_does_not_delay_a_finished_trial(hostile, tmp_path):
    start = time.monotonic()
    assert hostile("child", "--timeout=50").returncode == 0
    assert time.monotonic() - start < 30
    (record,) = store.read([tmp_path / "r"])[0]
    assert record.status == "ok"


def test_a_flood_of_messages_is_capped_in_the_log(hostile, tmp_path):
    assert hostile("flood").returncode == 0
    (log,) = tmp_path.glob("r/*/*.log")
    assert log.stat().st_size < 9 * 2**20
    assert log.read_bytes().endswith(b"more bytes are left out]\n")


METER = """
    import sys
    from benchmarker import Channel, Meter, hookimpl

    print("welcome to this library")

    @hookimpl
    def make_meter():
        return Odd()

    class Odd(Meter):
        channels = (Channel(id="id", domain="{domain}", quantity="{quantity}"),)
        unavailable = ()
        def read(self):
            return (1.0,)
"""


@pytest.mark.parametrize(
    ("domain", "quantity", "problem"),
    [
        ("moon", "energy_J", "Invalid enum value 'moon'"),
        ("gpu", "joy", "Invalid enum value 'joy'"),
        ("gpu", "power_average_W", ""),
    ],
)
def test_a_meter_with_an_odd_channel_is_unavailable(cli, tmp_path, monkeypatch, toy_folder, domain, quantity, problem):
    source = METER.replace("{domain}", domain).replace("{quantity}", quantity)
    install(tmp_path / "site", "odd", {"meter.odd": "odd"}, {"__init__.py": source})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", f"{toy_folder}:{tmp_path / 'site'}")
    registry.scan.cache_clear()
    found = samplers.probe(["odd"], None, {})["odd"]
    assert bool(found.channels) == (not problem)
    assert problem in " ".join(each.message for each in found.unavailable)
    words = (
        "run",
        "--framework=toy",
        "--problem=nap",
        "--ms=1",
        "--blocks=3",
        "--power=odd",
        "--power-min=0.2",
        "--json",
    )
    done = cli(*words, "--power-idle=0")
    assert done.returncode == 0
    (record,) = json.loads(done.stdout)
    assert record["status"] == "ok"
