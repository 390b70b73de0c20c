"""`power`, `telemetry` and what `show` says of power, as a user meets them."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import msgspec
import pytest
from support import sysfs
from support.records import make_record

from benchmarker import Channel, Unavailable
from benchmarker.api.case import Measuring
from benchmarker.cli.commands.telemetry import _width
from benchmarker.files import atomic
from benchmarker.formatting import clean, si
from benchmarker.power import telemetry
from benchmarker.power.energy import Timed, compute_energy
from benchmarker.power.live import sensors, take
from benchmarker.power.sampler import MeterProbe, Sample
from benchmarker.power.sampler_client import SamplerClient
from benchmarker.power.samplers import Sampled, Sampling
from benchmarker.records.record import nulls, reason
from benchmarker.tables.table import metric_heading

S = 1_000_000_000
HOSTILE = "package-0\x1b[31m\x07[bold]x[/]\u202e"
SHOWN = clean(HOSTILE)


def refused(done, *texts):
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("benchmarker: error: ")
    assert done.stderr.count("\n") == 1
    for text in texts:
        assert text in done.stderr


COUNTING = """
import os, sys, time

if "benchmarker.power.sampler" in sys.orig_argv:
    watts, origin_ns = {watts}, {origin_ns}
    read_ns = origin_ns
    clock, opened = time.monotonic_ns, os.open

    def monotonic_ns():
        global read_ns
        read_ns = clock()
        return read_ns

    def open_(path, *rest, **options):
        file = opened(path, *rest, **options)
        if str(path) not in watts:
            return file
        os.close(file)
        begin, end = os.pipe()
        os.write(end, b"%d\\n" % (watts[str(path)] * (read_ns - origin_ns) / 1000))
        os.close(end)
        return begin

    time.monotonic_ns, os.open = monotonic_ns, open_
"""
"""Lets counters of a sampler stand where they should at the time that it last read from its clock."""


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Plays zones of powercap by name, with a power (W) each; however busy the machine is, their counters are exact."""

    def begin(zones):
        root = tmp_path / "sys"
        sysfs.powercap(root, {zone: name for zone, (name, _) in zones.items()})
        monkeypatch.setenv("BENCHMARKER_SYSFS", str(root))
        watts = {str(sysfs.zone_file(root, zone)): power for zone, (_, power) in zones.items()}
        (root / "sitecustomize.py").write_text(COUNTING.format(watts=watts, origin_ns=time.monotonic_ns()))
        monkeypatch.setenv("PYTHONPATH", str(root))

    return begin


HOST = {"intel-rapl:0": ("package-0", 100.0), "intel-rapl:0:0": ("dram", 10.0), "intel-rapl:1": ("psys", 150.0)}


def test_power_shows_the_sensors_and_what_they_read(command, play):
    play(HOST)
    done = command("power", "--power=rapl,hwmon")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["sensor", "device", "now"]
    rows = {line.split()[1]: line.split() for line in lines[1:4]}
    assert {name: row[2] for name, row in rows.items()} == {
        "package-0": "intel-rapl:0",
        "dram-0": "intel-rapl:0:0",
        "psys": "intel-rapl:1",
    }
    assert (rows["package-0"][3:], rows["dram-0"][3:]) == (["100", "W"], ["10", "W"])
    assert "rapl package-0 and 2 more  energy_J      updated every 1 ms, wraps at 262.1 kJ" in done.stdout
    assert "rapl psys covers the platform, as defined by its manufacturer\n" in done.stdout
    assert any(line.startswith("hwmon  unsupported: ") and "mount the host's /sys" in line for line in lines)


def test_power_as_json_has_every_channel_and_every_lack(command, play):
    play(HOST)
    found = json.loads(command("power", "--power=rapl,hwmon", "--json").stdout)
    assert [(each["id"], each["domain"], each["pci"]) for each in found["sensors"]] == [
        ("package-0", "package", None),
        ("dram-0", "dram", None),
        ("psys", "psys", None),
    ]
    (channel,) = found["sensors"][0]["channels"]
    assert (channel["quantity"], channel["update_ms"], channel["window_ms"]) == ("energy_J", 1.0, None)
    assert channel["value"] > 0
    assert found["sensors"][2]["power_W"] == pytest.approx(150, rel=1e-5)
    assert [(missing["meter"], missing["reason"]) for missing in found["unavailable"]] == [("hwmon", "unsupported")]


@pytest.mark.parametrize("options", [(), ("--watch",), ("--watch", "--seconds=60")])
def test_power_where_there_is_no_sensor_says_why_and_is_no_failure(command, monkeypatch, options):
    monkeypatch.setenv("BENCHMARKER_SYSFS", "/nowhere")
    done = command("power", "--power=rapl,hwmon", *options)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "No power sensor is available here."
    assert [line.split(":")[0].split() for line in lines if line.startswith(("hwmon", "rapl"))] == [
        ["rapl", "unsupported"],
        ["hwmon", "unsupported"],
    ]
    assert json.loads(command("power", "--power=rapl", "--json").stdout)["sensors"] == []
    done = command("power", "--power=rapl", "--json", "--watch")
    assert (done.stdout, done.stderr) == ("", "benchmarker: no power sensor is available here\n")


def test_mistakes_of_power(command):
    refused(command("power", "--power=rapk"), "no meter is named 'rapk'; did you mean rapl?")
    refused(command("power", "--seconds=3"), "--seconds needs --watch")
    refused(command("power", "--watch", "--seconds=0"), "--seconds")
    assert command("power", "--power=none").stdout == "No meter was queried.\n"


@pytest.mark.parametrize(
    "options", [(), ("--json",), ("--watch", "--seconds=0.3"), ("--watch", "--seconds=0.3", "--json")]
)
def test_a_hostile_name_of_a_sensor_steers_no_terminal(command, play, options):
    play({"intel-rapl:0": (HOSTILE, 100.0)})
    done = command("power", "--power=rapl", *options)
    assert done.returncode == 0
    assert all(char.isprintable() or char == "\n" for char in done.stdout + done.stderr)
    if "--json" in options:
        assert HOSTILE in _strings(json.loads(done.stdout))
    else:
        assert f"rapl {SHOWN}" in done.stdout


def _strings(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []


def test_watching_in_a_pipe_is_a_line_a_second_until_the_time_is_over(command, play):
    play(HOST)
    start = time.monotonic()
    done = command("power", "--watch", "--seconds=1.5", "--power=rapl", "--json")
    assert time.monotonic() - start < 5
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["package-0", "dram-0", "psys"] * 2
    assert 1.0 <= rows[0]["elapsed_s"] < 1.5 <= rows[3]["elapsed_s"] < 3
    last = rows[3]
    assert last["mean_W"] == pytest.approx(100, rel=1e-5)
    assert last["energy_J"] == pytest.approx(100 * last["elapsed_s"], rel=0.2)
    assert last["peak_W"] == pytest.approx(100, rel=1e-5)
    assert last["temperature_C"] is None


def test_watching_ends_well_when_it_is_interrupted(play, tmp_path):
    play(HOST)
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarker", "power", "--watch", "--power=rapl"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    assert re.match(r"\d\.\d s  rapl package-0  now \d+(\.\d+)? W  mean ", first)
    assert "\x1b" not in first + rest


def test_watching_on_a_terminal_draws_over(play, tmp_path):
    play(HOST)
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarker", "power", "--watch", "--power=rapl", "--seconds=1.2"],
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        stdout=child,
        stderr=child,
    ) as process:
        os.close(child)
        seen = b""
        try:
            while chunk := os.read(parent, 4096):
                seen += chunk
        except OSError:  # the terminal is gone with the process
            pass
    os.close(parent)
    assert process.returncode == 0
    assert seen.count(b"rapl package-0") >= 2
    assert b"press Ctrl-C to stop" in seen
    assert b"\x1b[2K" in seen


def test_what_samplers_wrote_can_be_dropped_while_they_run(play):
    play(HOST)
    with Sampling(["rapl"], "cpu", 0.01, {}) as running, closing(SamplerClient(running.links())) as edges:
        for _ in range(5):
            edges.mark("before")
        running.forget()
        edges.mark("after")
        (sampled,) = running.gather()
    marks = [sample.mark for sample in sampled.samples]
    assert marks[-1] == "after"
    assert len(marks) <= 2  # the last one before may have been written after it was answered


def sensor(*channels, meter="toy"):
    """A sensor with channels, and what makes it read: seconds, then a reading of each channel."""
    (made,) = sensors({meter: MeterProbe(tuple(Channel(id="x", domain="gpu", **channel) for channel in channels))})
    return made, lambda at_s, *readings: take([made], {meter: Sample(round(at_s * S), 0, "", readings)})


def test_a_counter_is_followed_across_its_end():
    made, reads = sensor({"quantity": "energy_J", "wraps_at": 1000.0})
    for at_s, joules in ((0, 900.0), (1, 950.0), (2, 50.0), (3, 60.0)):
        reads(at_s, joules)
    now = made.now()
    assert (now.energy_J, now.mean_W, now.peak_W, now.trouble) == (160.0, pytest.approx(160 / 3), 100.0, [])
    reads(4, 90.0)
    assert made.now().power_W == 30.0  # since it was last asked
    reads(5, 80.0)
    now = made.now()
    assert (now.energy_J, now.power_W, now.trouble) == (190.0, None, ["the counter ran backwards"])


def test_polled_power_is_held_until_the_next_and_a_missing_one_counts_for_nothing():
    made, reads = sensor({"quantity": "power_instant_W"}, {"quantity": "temperature_C"})
    reads(0, 100.0, 40.0)
    reads(1, 300.0, 50.0)
    now = made.now()
    assert (now.power_W, now.mean_W, now.peak_W, now.energy_J, now.temperature_C) == (300.0, 100.0, 300.0, 100.0, 50.0)
    reads(2, "lost", 50.0)
    now = made.now()
    assert (now.power_W, now.energy_J, now.trouble) == (None, 100.0, ["power_instant_W: lost"])
    reads(3, "lost", "lost")
    assert made.now().trouble == ["lost"]
    take([made], {})
    now = made.now()
    assert (now.power_W, now.temperature_C, now.trouble) == (None, None, ["its meter does not answer"])


def test_why_clocks_were_held_down_since_it_was_last_asked():
    bits = {4: "power cap", 32: "thermal", 64: "thermal"}
    made, reads = sensor(
        {"quantity": "throttle_mask", "bits": bits}, {"quantity": "throttle_time_s", "what": "power brake"}
    )
    reads(0, 0.0, 7.0)
    reads(1, 68.0, 7.0)
    reads(2, 0.0, 7.5)
    assert made.now().throttle == ["power cap", "thermal", "power brake"]
    reads(3, 0.0, 7.5)
    assert made.now().throttle == []


def readings(channels, values, times, marks=()):
    """What a toy meter read: `values` of the channels by the time (s), and at some times for an edge."""
    marked = {at: mark for mark, at in marks}
    samples = [Sample(round(at * S), 0, marked.get(at, ""), tuple(values(at))) for at in sorted({*times, *marked})]
    return Sampled("toy", tuple(Channel(**each) for each in channels), (), samples)


CARD = {"id": "GPU-aaaaaaaa", "domain": "gpu", "device": "Toy Card"}
CHANNELS = [
    {**CARD, "quantity": "energy_J"},
    {**CARD, "quantity": "power_instant_W"},
    {**CARD, "quantity": "temperature_C"},
    {**CARD, "quantity": "memory_used_bytes"},
    {**CARD, "quantity": "throttle_mask", "bits": {4: "power cap"}},
]


def line():
    """A time series of 20 s, with the timed part from 110 s to 118 s: 100 W, and then 200 W."""

    def values(at):
        joules = 100.0 * (at - 100) + 100.0 * max(0, at - 114)
        return joules, 7.0, "sentinel" if at > 119 else 40.0 + (at >= 114), 2.0**30, 4.0 * (112 <= at < 114)

    marks = (("look", 104.25), ("look", 104.75), ("begin", 110.0), ("end", 118.0))
    return readings(CHANNELS, values, [100 + each / 4 for each in range(81)], marks)


@pytest.fixture
def stored(tmp_path):
    """Stores a record, with a time series beside it or without; returns the record's path."""

    def store_(sampled=None, *, trial=0, **fields):
        record = make_record(trial=trial, **fields)
        folder = tmp_path / "results" / "run"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{record.trial_id}.json"
        path.write_bytes(atomic.encode(record))
        if sampled:
            (folder / f"{record.trial_id}.telemetry.parquet").write_bytes(telemetry.encode([sampled]))
        return path

    return store_


def table_of(text):
    """The rows of a time series by time, without the lines around them."""
    rows = [line.split() for line in text.splitlines()]
    return {float(row[0]): row[1:] for row in rows if re.fullmatch(r"-?\d+(\.\d+)?", row[0])}


def test_a_time_series_is_a_table_of_means_relative_to_the_timed_part(command, stored):
    path = stored(line())
    done = command("telemetry", str(path), "--rows=12")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1: toy GPU-aaaaaaaa gpu\n")
    headings = done.stdout.splitlines()[1].split()
    assert headings == ["s", "mark", "1", "power", "1", "temperature", "1", "throttled", "by"]
    rows = table_of(done.stdout)
    assert list(rows) == [-10, -8, -6, -4, -2, 0, 2, 4, 6, 8, 10]
    assert rows[-6] == ["2", "looks", "100", "W", "40", "°C", "-"]
    assert rows[0] == ["begin", "100", "W", "40", "°C", "-"]
    assert rows[2] == ["-", "100", "W", "40", "°C", "power", "cap"]
    assert rows[6] == ["-", "200", "W", "41", "°C", "-"]
    assert rows[8] == ["end", "200", "W", "41", "°C", "-"]
    assert "toy GPU-aaaaaaaa gpu: 4 readings are missing (sentinel)\n" in done.stdout
    wide = command("telemetry", str(path.parent), "--wide", "--rows=1").stdout
    assert "1 power by counter  1 power_instant " in wide
    assert "1 GiB" in wide


def test_a_time_series_as_csv_and_json_has_every_reading(command, stored):
    path = str(stored(line()))
    rows = json.loads(command("telemetry", path, "--json").stdout)
    lines = list(csv.DictReader(io.StringIO(command("telemetry", path, "--csv").stdout)))
    assert len(rows) == len(lines) == 5 * len(line().samples)
    assert list(rows[0]) == list(lines[0]) == ["time_s", *telemetry.COLUMNS]
    begins = [row for row in rows if row["mark"] == "begin"]
    assert {row["time_s"] for row in begins} == {0.0}
    assert [row["value"] for row in begins] == [1000.0, 7.0, 40.0, 2.0**30, 0.0]
    for row, read in zip(rows, lines, strict=True):
        assert (read["value"] == "") == (row["value"] is None) == (row["reason"] == "sentinel")
    refused(command("telemetry", path, "--csv", "--json"), "exclude each other")


def test_a_counter_that_falls_gives_no_power(command, stored):
    fallen = readings(CHANNELS[:1], lambda at: [100.0 * at % 1000], [each / 4 for each in range(81)], [("begin", 0.0)])
    rows = table_of(command("telemetry", str(stored(fallen)), "--rows=41").stdout)
    assert rows[0] == ["begin", "100", "W"]
    assert {tuple(cells) for at, cells in rows.items() if 0 < at < 20} == {("-", "100", "W")}
    assert rows[20] == ["-", "-"]  # nothing but the reading that fell


def test_a_counter_that_wraps_is_mended(command, stored):
    wraps = [{**CHANNELS[0], "wraps_at": 1000.0}]
    wrapped = readings(wraps, lambda at: [100.0 * at % 1000], [each / 4 for each in range(81)], [("begin", 0.0)])
    rows = table_of(command("telemetry", str(stored(wrapped)), "--rows=41").stdout)
    assert {tuple(cells[-2:]) for cells in rows.values()} == {("100", "W")}


def test_a_time_series_of_a_trial_that_was_not_timed_begins_with_its_first_reading(command, stored):
    untimed = readings(CHANNELS[:1], lambda at: [100.0 * at], [5.0, 6.0, 7.0])
    done = command("telemetry", str(stored(untimed)))
    assert done.stdout.startswith("nothing was timed: times are since the first reading\n")
    assert min(table_of(done.stdout)) == 0


def test_hostile_names_in_a_time_series(command, stored):
    of = readings([{**CHANNELS[0], "id": HOSTILE}], lambda at: [at], [0.0, 1.0, 2.0], [("begin", 0.0)])
    path = str(stored(of))
    for options in ((), ("--csv",), ("--json",)):
        done = command("telemetry", path, *options)
        assert done.returncode == 0
        assert all(char.isprintable() or char == "\n" for char in done.stdout)
    assert f"1: toy {SHOWN} gpu\n" in command("telemetry", path).stdout


def test_results_without_one_time_series_are_refused_in_one_line(command, stored, tmp_path):
    refused(command("telemetry", "nowhere.json"), "nowhere.json: no such file or folder")
    accounts = compute_energy([LACKING], None, (0, 0), 0.05)
    reasons = {**make_record().reasons, **reasons_of(accounts)}
    record = msgspec.structs.replace(make_record(), meters=accounts.meters, reasons=reasons)
    silent = tmp_path / "silent.json"
    silent.write_bytes(atomic.encode(record))
    refused(
        command("telemetry", str(silent)), "silent.json has no time series: nothing was measured: rapl: permission;"
    )
    refused(command("telemetry", str(tmp_path)), "contains no time series: nothing was measured: rapl: permission;")
    (tmp_path / "damaged.json").write_text("{")
    refused(command("telemetry", "damaged.json"), "damaged.json: Input data was truncated")
    one, two = stored(line()), stored(line(), trial=1)
    refused(command("telemetry", "results"), "contains 2 time series; name one: ", one.stem, two.stem)
    file = one.with_name(f"{one.stem}.telemetry.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    refused(command("telemetry", str(one)), "not a time series")
    file.write_bytes(b"")
    refused(command("telemetry", str(file)), "not a time series")


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("span", [(0.0, 0.0), (-3.3, 61.7), (0.0, 3600.0), (-0.1, 0.2), (5.0, 5.001)])
def test_a_table_is_no_longer_than_asked_for(rows, span):
    import pandas as pd

    first, last = span
    width = _width(pd.Series([first, last]), rows)
    assert last // width - first // width < max(rows, 2)  # what lies on both sides of 0 takes two rows


def reasons_of(accounts):
    """Why what is null is null: as the meters said, or as is declared."""
    parts = msgspec.to_builtins({"energy": accounts.energy, "meters": accounts.meters})
    return {path: reason(path, make_record().case) for path in nulls(parts)} | accounts.reasons


def sensed(sampled, *, unavailable=(), power="auto", platform="cuda", step_s=0.1):
    """A record of a case that ran on the toy card, for 80 steps of two samples."""
    accounts = compute_energy(
        [sampled, *unavailable], Timed(platform, "GPU-aaaaaaaa", None, 80, 160, step_s), (100 * S, 103 * S), 0.25
    )
    record = make_record()
    return msgspec.structs.replace(
        record,
        case=msgspec.structs.replace(record.case, measuring=Measuring(power=power)),
        energy=accounts.energy,
        telemetry=accounts.telemetry,
        meters=accounts.meters,
        reasons={name: why for name, why in record.reasons.items() if name != "energy"} | reasons_of(accounts),
    )


LACKING = Sampled("rapl", (), (Unavailable("", "permission", "for root alone: run as root"),), [])


@pytest.fixture
def show(command, tmp_path):
    """The rows of a record as it is shown: the metrics, and the rest by name."""

    def shown(record):
        (tmp_path / "record.json").write_bytes(atomic.encode(record))
        done = command("show", "record.json")
        assert (done.returncode, done.stderr) == (0, "")
        return [line.split("  ", 1) for line in done.stdout.splitlines() if line]

    return shown


def row(rows, name):
    (text,) = (rest[0].strip() for first, *rest in rows if first == name)
    return text


def test_show_tells_the_energy_and_each_sensor(show):
    rows = show(sensed(line(), unavailable=[LACKING]))
    assert row(rows, "energy") == "1.2 kJ of gpu in 8.0 s, 80 steps, 160 samples, mean 150 W, idle 7 W"
    assert row(rows, "SHORT") == "an energy figure needs 30 s or more: use --power-min=60"
    text = row(rows, "toy GPU-aaaaaaaa gpu")
    assert text.startswith("1.2 kJ by counter (polled 56 J, ratio 21.4), mean 150 W, p95 7 W, peak 7 W, idle ")
    assert "SUSPECT: energy counter and polled power disagree" in text
    assert row(rows, "toy Toy Card") == "temperature 41 °C, memory used 1 GiB"
    assert row(rows, "throttled by") == "toy Toy Card: power cap 24.2% of the readings"
    assert not any(first == "THROTTLED" for first, *_ in rows)
    assert row(rows, "rapl unavailable") == "permission: for root alone: run as root"
    assert row(rows, "samples_per_J").split() == ["0.1333", "higher", "is", "better"]


def test_show_says_plainly_that_a_device_was_throttled(show):
    hot = [CHANNELS[0], {**CARD, "quantity": "throttle_mask", "bits": {1: "thermal"}}]
    of = readings(hot, lambda at: (100.0 * at, 1.0), [each / 4 for each in range(61)], [("begin", 2.0), ("end", 12.0)])
    rows = show(sensed(of, power="passive"))
    assert row(rows, "THROTTLED") == "toy Toy Card reduced its clocks: thermal"
    assert row(rows, "throttled by") == "toy Toy Card: thermal 100.0% of the readings"
    assert row(rows, "SHORT").endswith("--power=auto --power-min=60")


def test_show_says_that_the_memory_of_the_card_is_a_part_of_it(show):
    card = {"id": "GPU-aaaaaaaa", "quantity": "power_instant_W"}
    sensors = [{**card, "domain": domain} for domain in ("gpu", "gpu_memory")]
    at_s = [each / 20 for each in range(1000)]
    rows = show(sensed(readings(sensors, lambda _: (500.0, 90.0), at_s, [("begin", 4.0), ("end", 44.0)])))
    assert row(rows, "toy GPU-aaaaaaaa gpu_memory").endswith("a part of the device's")
    assert row(rows, "energy").startswith("20 kJ of gpu in ")


def test_show_tells_the_whole_machine_and_what_a_sensor_sees(show):
    host = [
        {"id": "package-0", "domain": "package", "quantity": "energy_J", "accuracy_percent": 5.0},
        {"id": "board", "domain": "gpu", "quantity": "power_instant_W", "scope": "whole card", "shared": True},
    ]
    of = readings(
        host, lambda at: (100.0 * at, 50.0), [each / 4 for each in range(200)], [("begin", 4.0), ("end", 44.0)]
    )
    rows = show(sensed(of))
    assert row(rows, "energy") == "none: the sensor covers more than what ran the case: whole card"
    assert row(rows, "energy, all sensors").startswith("6 kJ of gpu, package in 40.0 s, ")
    package = row(rows, "toy package-0")
    assert "±5% as documented" in package
    assert package.endswith("not of the device that ran the case")
    assert "shared: the case may have caused only part of the reading, covers whole card" in row(rows, "toy board gpu")
    assert not any(first == "SHORT" for first, *_ in rows)


def test_show_is_short_where_nothing_was_sensed(show):
    record = make_record()
    accounts = compute_energy([LACKING], None, (0, 0), 0.05)
    reasons = {**record.reasons, **reasons_of(accounts), "energy": "rapl: permission: for root alone: run as root"}
    silent = msgspec.structs.replace(record, meters=accounts.meters, reasons=reasons)
    rows = show(silent)
    assert row(rows, "power") == "none: rapl: permission; run `benchmarker power` for details"
    assert row(rows, "mean_power_W").split(None, 1)[1] == "no energy, reasons below"
    assert sum("for root alone" in " ".join(each) for each in rows) == 0
    case = msgspec.structs.replace(record.case, measuring=Measuring(power="rapl"))
    rows = show(msgspec.structs.replace(silent, case=case))
    assert row(rows, "energy") == "none: no sensor can be read"
    assert row(rows, "rapl unavailable") == "permission: for root alone: run as root"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (312.44, "W", "312.4 W"),
        (0.0456, "J", "45.6 mJ"),
        (123456.7, "J", "123.5 kJ"),
        (2.5e9, "FLOP/J", "2.5 GFLOP/J"),
        (0.0000123, "1/J", "1.23e-05"),
        (1234.5, "1/J", "1234"),
    ],
)
def test_units_of_energy(value, unit, text):
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("metric", "heading"),
    [
        ("samples_per_s", "samples/s"),
        ("samples_per_J", "samples/J"),
        ("energy_per_step_J", "energy/step"),
        ("mean_power_W", "mean power"),
        ("step_time_median_s", "step time median"),
        ("step_time_p10_s", "step time p10"),
        ("device_peak_bytes", "device peak"),
    ],
)
def test_headings_of_metrics(metric, heading):
    assert metric_heading(metric) == heading


def test_list_and_power_say_the_same_of_a_meter(command, play, monkeypatch):
    play(HOST)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    listed = {row["name"]: row for row in json.loads(command("list", "meters", "--json").stdout)}
    found = json.loads(command("power", "--json").stdout)
    assert {name for name, row in listed.items() if row["available"]} == {each["meter"] for each in found["sensors"]}
    assert listed["rapl"] == {**listed["rapl"], "available": True, "reason": None}
    reasons = {each["meter"]: f"{each['reason']}: {each['message']}" for each in found["unavailable"]}
    assert {name: row["reason"] for name, row in listed.items() if not row["available"]} == {
        name: reason for name, reason in reasons.items() if name != "rapl"
    }
    lines = command("list", "meters").stdout.splitlines()
    assert [line.split()[4] for line in lines if line.split()[1] in ("rapl", "hwmon")] == ["no:", "yes"]
    shown = command("power").stdout
    for name in ("nvml", "hwmon"):
        assert f"no: {listed[name]['reason']}" in "\n".join(lines)
        assert listed[name]["reason"] in shown
    whole = {row["name"]: row for row in json.loads(command("list", "--json").stdout) if row["kind"] == "meter"}
    assert {row["available"] for row in whole.values()} == {None}
    assert {row["reason"] for row in whole.values()} == {"not queried; `benchmarker list meters` does"}
