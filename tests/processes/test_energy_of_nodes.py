"""Energy over several nodes, which are all this machine: the cards of each are played, and so may be its clock."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from support import nvml
from support.cards import Card, Constant, Fault, Ramp, write
from support.pages import figures_in
from support.rack import install_rack, left_of, none_left

from benchmarker.power import telemetry
from benchmarker.records import store

NAP = ("run", "--framework=toy", "--problem=nap", "--device=cuda", "--devices=2", "--nodes=2", "--results=r")
NVML = ("--power=nvml", "--power-idle=0.5", "--power-min=1", "--blocks=3")
SHIFT = 1_000_000
"""How far the clock of a node is put forward, s."""
CLOCK = f"""
import time
_monotonic, _monotonic_ns = time.monotonic, time.monotonic_ns
time.monotonic = lambda: _monotonic() + {SHIFT}
time.monotonic_ns = lambda: _monotonic_ns() + {SHIFT} * 10**9
"""


class Nodes:
    """The nodes left and right, of which this process is on the left, and what is played on each."""

    def __init__(self, folder, toy_folder):
        self.folder, self.rack = folder, folder / "rack"
        self.rack.mkdir()
        install_rack(self.rack)
        self.env = {**os.environ, "RACK_NODES": "left,right", "RACK_HERE": "left", "TOY_CARD": "GPU-left"}
        self.env["PYTHONPATH"] = os.pathsep.join(map(str, (toy_folder, self.rack)))
        self.origins = {}

    def play(self, node, *cards, **variables):
        """Let a node have these cards, whose time begins now, and these variables."""
        script = self.folder / f"{node}.cards"
        self.origins[node] = write(script, cards)
        found = {**(nvml.environment(script) if cards else {}), **variables}
        self.env[f"RACK_BEFORE_{node}"] = " ".join(["env", *(f"{name}={value}" for name, value in found.items())])

    def start(self, *words):
        default = ("env", "--default-signal=INT")  # which a shell ignores in the background
        return subprocess.Popen(
            [*default, sys.executable, "-m", "benchmarker", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words):
        with self.start(*words) as process:
            out, self.said = process.communicate(timeout=120)
        return process.returncode, out

    def record(self, *words):
        """Measure a trial; returns its record."""
        (record,) = self.records(*words)
        return record

    def records(self, *words):
        """Measure trials; returns their records in order."""
        returncode, _ = self.run(*NAP, *words)
        assert returncode == 0, self.said
        found, faults = store.read([self.folder / "r"])
        assert not faults
        return sorted(found, key=lambda record: record.trial)

    def wait_for(self, module):
        """Wait until a process on each node runs a module; returns the last of each node."""
        deadline = time.monotonic() + 120
        found = {}
        while len(found) < 2:
            assert time.monotonic() < deadline
            for process in left_of(self.rack):
                try:
                    node = process.environ().get("RACK_NODE")
                    if node and module in process.cmdline():
                        found[node] = process
                except psutil.Error:
                    pass
            time.sleep(0.05)
        return found


@pytest.fixture
def nodes(tmp_path, toy_folder):
    made = Nodes(tmp_path, toy_folder)
    yield made
    none_left(made.rack)


def card(uuid, curve, **faults):
    return Card(uuid=uuid, curve=curve, counter_update_s=0.001, **faults)


def measured(record):
    return [each for each in record.energy.sensors if each.measured]


def window_s(sensor):
    return (sensor.end_ns - sensor.begin_ns) / 1e9


@pytest.mark.slow
def test_the_energy_is_the_sum_of_what_the_meters_of_each_node_read_in_its_own_window(nodes):
    """One clock is eleven days ahead of the other, and one card draws more from second to second."""
    (nodes.folder / "ahead").mkdir()
    (nodes.folder / "ahead" / "sitecustomize.py").write_text(CLOCK)
    ramp = Ramp(50.0, 650.0, 200.0)
    nodes.play("left", card("GPU-left", ramp))
    ahead = os.pathsep.join([nodes.env["PYTHONPATH"], str(nodes.folder / "ahead")])
    nodes.play("right", card("GPU-right", Constant(300.0)), PYTHONPATH=ahead)
    record = nodes.record(*NVML)
    energy = record.energy
    left, right = measured(record)
    assert [(each.node, each.id) for each in (left, right)] == [(0, "GPU-left"), (1, "GPU-right")]
    assert {(each.node, each.id) for each in energy.sensors} == {(0, "GPU-left"), (1, "GPU-right")}
    assert right.begin_ns - left.end_ns > (SHIFT - 100) * 1e9
    origin = nodes.origins["left"]
    of_left = ramp.energy(left.end_ns / 1e9 - origin) - ramp.energy(left.begin_ns / 1e9 - origin)
    assert energy.energy_J == pytest.approx(of_left + 300 * window_s(right), rel=1e-3)
    assert energy.total_J == energy.energy_J
    assert energy.duration_s == max(window_s(left), window_s(right))
    assert min(window_s(left), window_s(right)) >= sum(record.blocks.duration_ns) / 1e9
    assert record.blocks.stopped_by == "power_min"
    assert energy.idle_W == pytest.approx(left.idle_W + 300, abs=0.5)
    assert energy.steps == record.blocks.steps_per_block * len(record.blocks.duration_ns)
    assert [(each.meter, each.node) for each in record.meters] == [("nvml", 0), ("nvml", 1)]
    assert {each.node for each in record.telemetry if each.measured} == {0, 1}
    (path,) = (nodes.folder / "r").glob("*/*.telemetry.parquet")
    read = telemetry.read(path)
    marked = read.readings[(read.readings["quantity"] == "energy_J") & (read.readings["mark"] != "")]
    risen = marked.groupby("node")["value"].agg(lambda of: of.iloc[-1] - of.iloc[0])
    assert energy.energy_J == pytest.approx(risen.sum())
    assert read.channels[1]["nvml"][0].id == "GPU-right"
    assert sorted(read.seconds()[read.readings["mark"] == "begin"].unique()) == [0.0]
    assert nodes.run("validate", "r")[0] == 0
    _, shown = nodes.run("show", str(path.with_name(f"{record.trial_id}.json")))
    assert "left nvml GPU-left gpu" in shown
    assert "right nvml GPU-right gpu" in shown
    _, table = nodes.run("telemetry", str(path), "--rows=5")
    assert "node 1 nvml GPU-right gpu" in table
    assert nodes.run("report", "r", "-o", "page.html")[0] == 0
    figures = str(figures_in((nodes.folder / "page.html").read_text()))
    assert all(f"node {node} nvml {name} gpu" in figures for node, name in ((0, "GPU-left"), (1, "GPU-right")))
    assert sum(record.harness.stages_s.values()) <= record.harness.wall_s
    assert record.harness.stages_s["rest"] >= 0.5


@pytest.mark.slow
def test_all_cards_of_a_node_count_and_what_is_not_of_the_case_is_in_the_total(nodes):
    nodes.env["TOY_CARD"] = "GPU-left,GPU-two"
    nodes.play("left", card("GPU-left", Constant(100.0)), card("GPU-two", Constant(10.0)))
    nodes.play(
        "right", card("GPU-right", Constant(300.0)), card("GPU-four", Constant(30.0)), card("GPU-x", Constant(5))
    )
    record = nodes.record(*NVML, "--devices=4")
    energy = record.energy
    assert energy.energy_J is None
    assert record.reasons["energy.energy_J"] == "node right: it is unknown which of 3 cards ran it"
    assert energy.total_J == pytest.approx(445 * energy.duration_s, rel=0.01)


@pytest.mark.slow
def test_without_a_meter_on_one_node_the_energy_is_null_and_names_it(nodes):
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right")
    record = nodes.record(*NVML)
    (said,) = [line for line in nodes.said.splitlines() if "no power" in line]
    assert said.startswith("node right: no power from nvml: ")
    assert record.energy.energy_J is None
    assert record.energy.total_J is None
    for name in ("energy_J", "total_J", "idle_W", "total_idle_W"):
        assert record.reasons[f"energy.{name}"].startswith("node right: nvml: ")
    (sensor,) = measured(record)
    assert sensor.node == 0
    assert sensor.energy_J == pytest.approx(100 * window_s(sensor), rel=0.01)
    assert [(each.node, each.channels > 0) for each in record.meters] == [(0, True), (1, False)]
    assert nodes.run("validate", "r")[0] == 0


@pytest.mark.slow
def test_without_a_meter_on_any_node_the_reason_is_told_once(nodes):
    nodes.env["TOY_CARD"] = "GPU-left"
    nodes.env["BENCHMARKER_SYSFS"] = str(nodes.folder)
    record = nodes.record("--power=rapl", "--blocks=2")
    assert record.energy is None
    assert record.reasons["energy"].startswith("rapl: unsupported: ")
    assert nodes.said.count("no power from rapl: unsupported: ") == 1
    assert sum(record.blocks.duration_ns) < 10e9


def test_no_meter_is_read_where_none_is_wanted(nodes):
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0)))
    record = nodes.record("--power=none", "--blocks=2")
    assert (record.energy, record.meters) == (None, [])
    assert record.reasons["energy"] == "no meter was read (--power=none)"
    assert "rest" not in record.harness.stages_s


@pytest.mark.slow
def test_a_meter_that_reads_nothing_is_told_once_and_is_in_every_record(nodes):
    nodes.env["BENCHMARKER_SYSFS"] = str(nodes.folder)
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0)))
    first, second = nodes.records(
        "--power=nvml,rapl", "--power-idle=0.2", "--power-min=0.5", "--blocks=3", "--trials=2"
    )
    assert nodes.said.count("no power from rapl: unsupported: ") == 1
    for record in (first, second):
        assert record.energy.energy_J == pytest.approx(400 * record.energy.duration_s, rel=0.02)
        assert sorted((each.node, each.meter, each.channels > 0) for each in record.meters) == [
            (0, "nvml", True),
            (0, "rapl", False),
            (1, "nvml", True),
            (1, "rapl", False),
        ]
    (reason,) = {each.unavailable[0].text for each in (*first.meters, *second.meters) if each.meter == "rapl"}
    assert reason.startswith("unsupported: ")


@pytest.mark.slow
def test_a_card_that_is_lost_on_one_node_costs_the_sums_alone(nodes):
    gone = [Fault(f"nvmlDeviceGet{name}", 15, since=107.0) for name in ("TotalEnergyConsumption", "FieldValues")]
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0), faults=gone))
    record = nodes.record("--power=nvml", "--power-idle=0.5", "--power-min=8")
    assert record.status == "ok"
    assert record.energy.energy_J is None
    assert record.reasons["energy.energy_J"].startswith("node right: GPU-right: lost: ")
    left, _ = measured(record)
    assert left.energy_J == pytest.approx(100 * window_s(left), rel=0.01)


@pytest.mark.slow
def test_a_sampler_that_is_killed_on_one_node_costs_the_sums_alone(nodes):
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0)))
    with nodes.start(*NAP, "--power=nvml", "--power-idle=1", "--power-min=6") as process:
        nodes.wait_for("benchmarker.worker")
        time.sleep(3)
        nodes.wait_for("benchmarker.power.sampler")["right"].kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    (record,), _ = store.read([nodes.folder / "r"])
    assert record.reasons["energy.energy_J"] == (
        "node right: GPU-right: stalled: it gave no reading at the edges of the timed window"
    )
    (report,) = [each for each in record.meters if each.node == 1]
    assert "SIGKILL" in report.unavailable[-1].text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_rest_leaves_nothing_and_ends_at_once(nodes, number):
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0)))
    with nodes.start(*NAP, "--power=nvml", "--power-idle=100") as process:
        nodes.wait_for("benchmarker.power.sampler")
        time.sleep(1)
        process.send_signal(number)
        process.communicate(timeout=8)
    none_left(nodes.rack)


@pytest.mark.slow
def test_an_agent_that_is_killed_in_the_rest_is_a_lost_node(nodes):
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", card("GPU-right", Constant(300.0)))
    with nodes.start(*NAP, "--power=nvml", "--power-idle=4", "--json") as process:
        nodes.wait_for("benchmarker.power.sampler")
        nodes.wait_for("benchmarker.agent")["right"].kill()
        out, _ = process.communicate(timeout=60)
    error = json.loads(out)[0]["error"]
    assert (error["kind"], error["node"]) == ("node", "right")
    assert error["message"] == "node right was lost: its agent was ended by SIGKILL"


@pytest.mark.slow
def test_preheat_waits_for_the_power_and_the_temperature_of_all_nodes(nodes):
    """The rate stands still from the first; on the second node, the temperature rises by 2 degrees a second."""
    nodes.play("left", card("GPU-left", Constant(100.0)))
    nodes.play("right", Card(uuid="GPU-right", curve=Constant(300.0), temperature_rise=2.0))
    record = nodes.record("--preheat", "--preheat-max=4", "--power=passive", "--blocks=3")
    heat = record.preheat
    assert heat.outcome == "timeout"
    assert heat.window_power_W == pytest.approx([400] * len(heat.window_power_W), rel=0.05)
