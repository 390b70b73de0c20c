"""Fleets read from files: runs of hosts, and the folder of a fleet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.api.launcher import Allocation
from benchmarker.files.atomic import encode
from benchmarker.fleet import folder, values
from benchmarker.fleet.folder import FleetSpec, NodeState, Stage
from benchmarker.fleet.judge import judge
from benchmarker.records.job import Installed
from benchmarker.records.plan import make_plan


def store(path: Path, host: str, step_s: float, rounds: int, run: str = "run") -> None:
    """A run of a host: its plan and its records."""
    path.mkdir(parents=True)
    records = [make_record(step_s, run=f"{run}-{host}", trial=trial) for trial in range(rounds)]
    for record in records:
        machine = msgspec.structs.replace(record.machine, host=host)
        (path / f"{record.trial_id}.json").write_bytes(encode(msgspec.structs.replace(record, machine=machine)))
    (path / "plan.json").write_bytes(encode(make_plan([records[0].case], rounds, seed=1)))


def asked(nodes: list[str], **fields: Any) -> FleetSpec:
    return FleetSpec(
        **{
            "name": "naps",
            "frameworks": [],
            "settings": {},
            "seed": 1,
            "allocation": Allocation("played", "7", nodes, 0),
            "installed": Installed("3.11", None, {}),
            "started_at": "2026-01-01T00:00:00Z",
            "stages": [Stage(nodes, 3)],
            "ended_at": "2026-01-01T00:01:00Z",
            **fields,
        }
    )


def test_runs_of_hosts_that_were_copied_together_are_a_fleet(tmp_path: Path, command: Any) -> None:
    for number in range(4):
        store(tmp_path / f"host{number}", f"host{number}", 1.06 if number == 1 else 1 + 0.001 * number, 9)
    measured = values.read([tmp_path / f"host{number}" for number in range(4)])
    assert list(measured.nodes) == ["host0", "host1", "host2", "host3"]
    found = judge(measured, 0.05, 0.02)
    assert [(cell.node, cell.verdict, cell.rounds) for cell in found.named] == [("host1", "slower", 6)]
    done = command("nodes", "show", *(f"host{number}" for number in range(4)), "--junit=out.xml", "-o", "page.html")
    assert done.returncode == 1
    assert done.stdout.startswith("1 of 4 nodes is slower than the others: host1 by 5.")
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[2:7])
    xml = (tmp_path / "out.xml").read_text()
    assert 'failures="1"' in xml
    assert re.search(r"takes 5\.\d+% longer than the others \(", xml)
    assert command("nodes", "show", *(f"host{number}" for number in range(4)), "--delta=10%").returncode == 0


def test_trials_over_several_nodes_are_not_those_of_their_first(tmp_path: Path) -> None:
    for number in range(3):
        store(tmp_path / f"host{number}", f"host{number}", 1.0, 9)
    group = make_record(5.0, run="group", case={"devices": 2, "nodes": 2, "ranks": 2})
    machine = msgspec.structs.replace(group.machine, host="host1")
    (tmp_path / "group.json").write_bytes(encode(msgspec.structs.replace(group, machine=machine)))
    measured = values.read([tmp_path])
    assert [node.trials for node in measured.nodes.values()] == [9, 9, 9]
    assert len(measured.cases) == 1
    assert (
        "not counted: 1 trial over several nodes, which cannot be attributed to one"
        in judge(measured, 0.05, 0.02).doubts
    )
    with pytest.raises(UserError, match=r"no record of one node was read from .*group\.json"):
        values.read([tmp_path / "group.json"])


def test_a_damaged_record_is_named(tmp_path: Path, command: Any) -> None:
    for number in range(3):
        store(tmp_path / f"host{number}", f"host{number}", 1.0, 9)
    next(iter((tmp_path / "host0").glob("run*.json"))).write_text("{")
    done = command("nodes", "show", "host0", "host1", "host2")
    assert done.returncode == 1
    assert "note: cannot read host0/run-host0-" in done.stdout


def test_what_is_shown_of_a_fleet_that_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "fleet"
    for node in ("n1", "n2", "n3"):
        store(path / node / f"20260101T000000.00000{node[1]}-00000000", "same-host", 1.0, 3)
        state = NodeState(node=node, host="same-host", stage=0, started_at="", planned=3, done=3, ended_at="then")
        folder.save_state(path, state)
    nodes = ["n1", "n2", "n3", "n4"]
    folder.save_state(path, NodeState(node="n3", host="same-host", stage=0, started_at="", planned=6, done=3))
    folder.save_spec(path, asked(nodes, ended_at=None))
    measured = values.read([path])
    assert [node.trouble for node in measured.nodes.values()] == [
        "",
        "",
        "ended early, after 3 of 6 trials",
        "did not start",
    ]
    assert not measured.complete
    assert [node.trials for node in measured.nodes.values()] == [3, 3, 3, 0]
    assert judge(measured, 0.05, 0.02).doubts[0].startswith("the fleet's run is not complete")
    with pytest.raises(UserError, match="is a whole fleet; show it alone"):
        values.read([path, path / "n1"])


def test_a_damaged_fleet_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text("{}")
    with pytest.raises(UserError, match=r"fleet\.json: .*; name the folder of a fleet, such as results/RUN"):
        values.read([tmp_path])


def test_a_stage_that_a_node_has_not_begun_again_is_its_trouble() -> None:
    state = NodeState(node="n1", host="h", stage=0, started_at="", ended_at="then")
    assert folder.trouble(0, state) == ""
    assert folder.trouble(1, state) == "did not restart to repeat its cases"
