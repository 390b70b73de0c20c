"""Whole trials, their power played by fakes: what the records say."""

import pytest
from support import nvml
from support.cards import Card, Constant, Fault, Ramp, Wave, write
from support.commands import parsed

from benchmarker.comparing.disturbances import disturbances
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store

AA, BB = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
NAP = ("run", "--framework=toy", "--problem=nap", "--device=cuda", "--power=nvml", "--power-idle=0.5", "--results=r")


@pytest.fixture
def trial(cli, tmp_path):
    """Runs one trial on cards that are played; returns its record and the origin of the cards' time, s."""

    def run(*args, cards, seen=AA):
        script = tmp_path / "cards"
        origin = write(script, cards)
        done = cli(*NAP, *args, env={**nvml.environment(script), "TOY_CARD": seen})
        assert done.returncode == 0, done.stderr
        run.said = done.stderr
        (record,), faults = store.read([tmp_path / "r"])
        assert not faults
        return record, origin

    return run


def measured(record):
    (sensor,) = (each for each in record.energy.sensors if each.measured)
    return sensor


def per_joule(record):
    return load_metrics()(record)["samples_per_J"].value


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(Constant(100.0), id="constant", marks=pytest.mark.slow),
        pytest.param(Ramp(50.0, 650.0, 120.0), id="ramp", marks=pytest.mark.slow),
        pytest.param(Wave(80.0, 400.0, 0.3, 0.1), id="square", marks=pytest.mark.slow),
        pytest.param(Wave(90.0, 700.0, 1.0, 0.02), id="spikes", marks=pytest.mark.slow),
    ],
)
def test_energy_through_the_real_binding_is_the_integral(trial, curve):
    """The counter advances every 10 µs: an edge in a spike of 700 W is then known to 0.007 J, of about 200 J."""
    record, origin = trial("--power-min=2", cards=[Card(uuid=AA, curve=curve, counter_update_s=1e-5)])
    sensor = measured(record)
    exact = curve.energy(sensor.end_ns / 1e9 - origin) - curve.energy(sensor.begin_ns / 1e9 - origin)
    assert sensor.method == "counter"
    assert record.energy.energy_J == pytest.approx(exact, rel=1e-3)
    # However long a block took, the one in which the 2 s were over was the last.
    assert sum(record.blocks.duration_ns[:-1]) < 2e9
    assert record.energy.duration_s > 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--power-min=2", "--ms=1"),
        pytest.param(("--power-min=2", "--ms=130", "--preheat", "--preheat-max=3"), marks=pytest.mark.slow),
        pytest.param(
            ("--power=passive", "--ms=3", "--seconds=2", "--blocks=1000", "--warmup-steps=200"), marks=pytest.mark.slow
        ),
    ],
)
def test_a_constant_power_is_that_power_whatever_stands_around_the_timed_part(trial, options):
    """Energy of one window divided by the time of another made 535 W of 100."""
    card = Card(uuid=AA, curve=Constant(100.0), counter_update_s=0.001)
    record, _ = trial(*options, cards=[card])
    derived = load_metrics()(record)
    assert derived["mean_power_W"].value == pytest.approx(100, abs=0.5)
    if "--power=passive" in options:
        assert measured(record).idle_W is None
        assert record.reasons["energy.idle_W"].startswith(f"{AA}: it was not read")
    else:
        assert measured(record).idle_W == pytest.approx(100, abs=0.5)
    assert measured(record).polled_J == pytest.approx(record.energy.energy_J, rel=1e-3)
    energy, blocks = record.energy, record.blocks
    assert energy.steps == blocks.steps_per_block * len(blocks.duration_ns)
    assert sum(blocks.duration_ns) / 1e9 <= energy.duration_s <= record.interference.duration_s
    assert derived["samples_per_J"].value == pytest.approx(2 * energy.steps / (100 * energy.duration_s), rel=0.005)
    assert derived["energy_per_step_J"].value == pytest.approx(2 / derived["samples_per_J"].value)


def test_cards_in_another_order_are_told_apart(trial):
    cards = [
        Card(uuid=BB, pci="0000:02:00.0", curve=Constant(300.0), counter_update_s=0.001),
        Card(uuid=AA, pci="0000:01:00.0", curve=Constant(100.0), counter_update_s=0.001),
    ]
    record, _ = trial("--power-min=1", cards=cards)
    assert record.energy.energy_J == pytest.approx(100 * record.energy.duration_s, rel=0.01)
    assert record.energy.total_J == pytest.approx(400 * record.energy.duration_s, rel=0.01)


def card(uuid, number, watts):
    return Card(uuid=uuid, pci=f"0000:0{number}:00.0", curve=Constant(watts), counter_update_s=0.001)


@pytest.mark.slow
def test_the_energy_of_a_process_group_is_that_of_all_its_cards(trial):
    cards = [card(AA, 1, 100.0), card(BB, 2, 300.0)]
    record, _ = trial("--power-min=1", "--devices=2", cards=cards, seen=f"{AA},{BB}")
    energy = record.energy
    assert (record.case.ranks, sorted(each.id for each in energy.sensors if each.measured)) == (2, [AA, BB])
    assert energy.energy_J == pytest.approx(400 * energy.duration_s, rel=0.01)
    assert energy.idle_W == pytest.approx(400, rel=0.01)
    assert energy.total_J == pytest.approx(energy.energy_J)
    assert per_joule(record) == pytest.approx(2 * energy.steps / (400 * energy.duration_s), rel=0.01)
    assert energy.steps == record.blocks.steps_per_block * len(record.blocks.duration_ns)


def test_an_idle_card_beside_a_process_group_of_unknown_cards_leaves_no_energy(trial):
    cards = [card(AA, 1, 100.0), card(BB, 2, 300.0), card("GPU-cc", 3, 50.0)]
    record, _ = trial("--power-min=1", "--devices=2", cards=cards, seen=f"{AA},{BB}")
    assert record.energy.energy_J is None
    assert record.reasons["energy.energy_J"] == "it is unknown which of 3 cards ran it"
    assert record.energy.total_J == pytest.approx(450 * record.energy.duration_s, rel=0.01)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(
            Fault("nvmlDeviceGetTotalEnergyConsumption", -1, since=103.0), "stalled: ", marks=pytest.mark.slow
        ),
        pytest.param(Fault("nvmlInit_v2", 9), "driver: ", marks=pytest.mark.slow),
        (Fault("nvmlInit_v2", 4), "permission: "),
    ],
)
def test_a_driver_that_fails_costs_the_energy_alone(trial, fault, reason):
    record, _ = trial("--power-min=3", cards=[Card(uuid=AA, faults=[fault])])
    assert record.status == "ok"
    assert record.blocks.duration_ns
    assert per_joule(record) is None
    assert any(missing.text.startswith(reason) for meter in record.meters for missing in meter.unavailable)


@pytest.mark.slow
def test_a_card_lost_in_the_middle_is_told(trial):
    # The timed part begins at about 101 s, on a busy machine some seconds later. The card must be lost after that, and
    # before 90% of it is over: from then on, the power that was read gives the energy (`LEAST_COVERAGE`).
    gone = [Fault(f"nvmlDeviceGet{name}", 15, since=108.0) for name in ("TotalEnergyConsumption", "FieldValues")]
    record, _ = trial("--power-min=10", cards=[Card(uuid=AA, faults=gone)])
    assert per_joule(record) is None
    assert "lost: " in record.reasons["energy.sensors[0].energy_J"]
    assert "has no energy: GPU-" in trial.said


@pytest.mark.slow
def test_a_hot_card_marks_the_trial(trial):
    record, _ = trial("--power-min=1", cards=[Card(uuid=AA, throttle=(0x40, 0.0, 1e9))])
    assert record.telemetry[0].throttle["thermal"] == 1.0
    assert "throttled" in record.energy.flags
    assert "reduced its clocks: thermal" in disturbances([record])[0]["slowdown"]


@pytest.mark.slow
def test_preheat_waits_for_power_and_temperature(trial):
    """The rate stands still from the first; the temperature rises by 2 degrees a second."""
    card = Card(uuid=AA, temperature_rise=2.0)
    record, _ = trial("--preheat", "--preheat-max=4", "--power=passive", "--blocks=3", cards=[card])
    heat = record.preheat
    assert heat.outcome == "timeout"
    assert len(heat.window_temperature_C) == len(heat.window_power_W) == len(heat.window_steps_per_s) >= 3
    assert heat.window_power_W == pytest.approx([100] * len(heat.window_power_W), rel=0.05)


def test_a_duet_shares_one_power(cli, tmp_path):
    done = cli(
        "sweep", "--framework=toy", "--problem=nap", "--axis=ms=1,2", "--design=duet", "--power=rapl", "--trials=1"
    )
    assert done.returncode == 2
    assert "in one process cannot be measured separately" in done.stderr
    done = cli(
        "sweep",
        "--framework=toy",
        "--problem=nap",
        "--axis=ms=1,2",
        "--design=duet",
        "--blocks=2",
        "--trials=1",
        "--results=r",
    )
    assert done.returncode == 0
    for record in store.read([tmp_path / "r"])[0]:
        assert (record.energy, record.meters) == (None, [])
        assert "cannot be separated" in record.reasons["energy"]


NAPS = ("--framework=toy", "--problem=nap")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", *NAPS, "--power-hz=nan"), "not a finite number"),
        (("run", *NAPS, "--power-min=inf"), "--power-min=inf: not a time"),
        (("run", *NAPS, "--power-hz=1000"), "--power-hz=1000: must be at most 100"),
        (("run", *NAPS, "--power=ralp"), "did you mean rapl"),
        (("run", *NAPS, "--power=none,nvml"), "none cannot be combined with other names"),
        (("run", *NAPS, "--power=auto", "--timeout=30"), "--timeout=30 ends a trial before --power-min=60"),
        (("sweep", *NAPS, "--axis=power=none,auto"), "differ only in how they are profiled or their power is read"),
        (("sweep", *NAPS, "--axis=ms=1,2", "--axis=power=ralp"), "did you mean rapl"),
        (("ab", *NAPS, "--a=--ms=1", "--b=--ms=2", "--metric=samples_per_J", "--power=none"), "reads no meter"),
        (
            ("ab", *NAPS, "--a=--ms=1", "--b=--ms=2", "--metric=energy_J", "--design=duet"),
            "power readings cannot separate the two sides",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(cli, tmp_path, words, message):
    done = cli(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "power"),
    [
        ([], "passive"),
        (["--power-nvml"], "nvml"),
        (["--power=rapl"], "rapl"),
        (["--power-nvml", "--power=auto"], "auto"),
    ],
)
def test_power_nvml_is_short_for_power_nvml_as_a_value(options, power):
    assert parsed("run", "--framework=numpy", "--problem=gemm", *options).params["power"] == power


@pytest.mark.slow
def test_a_comparison_of_energies_is_no_duet(cli, tmp_path):
    words = ("--a=--ms=1", "--b=--ms=2", "--max-rounds=2", "--blocks=2", "--results=r")
    for metric, design in (("samples_per_s", "duet"), ("samples_per_J", "rounds")):
        cli("ab", *NAPS, *words, f"--metric={metric}")
        assert {record.design.kind for record in store.read([tmp_path / "r"])[0][-4:]} == {design}


@pytest.mark.slow
def test_which_meters_are_read_is_told_where_it_was_asked(cli):
    done = cli("run", *NAPS, "--power=auto", "--power-min=0", "--blocks=2", env={"BENCHMARKER_SYSFS": "/nowhere"})
    said = "power: reading no meter; unavailable: amdsmi, hwmon, nvml, rapl (`benchmarker power` shows why)\n"
    assert said in done.stderr
    done = cli("run", *NAPS, "--blocks=2")
    assert "power" not in done.stderr


def test_without_a_sensor_the_run_is_complete_otherwise(cli, tmp_path):
    done = cli(
        "run",
        "--framework=toy",
        "--problem=nap",
        "--power=rapl",
        "--blocks=2",
        "--results=r",
        env={"BENCHMARKER_SYSFS": str(tmp_path)},
    )
    assert done.returncode == 0
    assert "no power from rapl: unsupported: " in done.stderr
    (record,) = store.read([tmp_path / "r"])[0]
    assert record.energy is None
    assert record.reasons["energy"].startswith("rapl: unsupported: ")
    assert len(record.blocks.duration_ns) == 2
    assert not list(tmp_path.glob("r/*/*.telemetry.parquet"))
