"""The parent of links: pairs that share no node have their turn together, and one that stays silent is given up."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from support.records import make_record
from unit.fleet.test_parent import Said
from unit.fleet.test_values import asked

from benchmarker.fleet import folder, links
from benchmarker.fleet.folder import LinkStage
from benchmarker.fleet.links import ring
from benchmarker.records.plan import make_plan

PLAYED = """
import os, sys, time
path, stage, *ends = sys.argv[1:]
told = os.open(path + "/turns", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
next(sys.stdin)
for turn in sys.stdin:
    os.write(told, f"begin {'+'.join(ends)}\\n".encode())
    time.sleep(0.1)
    os.write(told, f"end {'+'.join(ends)}\\n".encode())
    if SILENT not in ends: print(flush=True)
    if '"trial":LAST}' in turn: break
"""


def run(path: Path, monkeypatch: pytest.MonkeyPatch, number: int, trials: int, silent: str = "") -> list[str]:
    """Run played links of a ring of so many nodes, of which those of one node do not answer; returns what was said."""
    monkeypatch.setattr(
        links,
        "PROGRAM",
        (sys.executable, "-c", PLAYED.replace("SILENT", repr(silent)).replace("LAST", str(trials - 1))),
    )
    nodes = [f"n{at}" for at in range(number)]
    fleet = asked(nodes, link_stages=[LinkStage(ring(nodes), trials)])
    progress = Said()
    links.run_links(path, fleet, 0, make_plan([make_record().case], trials, seed=1), 5.0, progress)
    return progress.said


@pytest.mark.parametrize(("number", "at_once", "most"), [(6, 128, 3), (5, 128, 2), (6, 2, 2)])
def test_a_node_is_in_one_pair_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, at_once: int, most: int
) -> None:
    monkeypatch.setattr(links, "MOST_AT_ONCE", at_once)
    run(tmp_path, monkeypatch, number, 2)
    running: set[str] = set()
    largest, ended = 0, []
    for line in (tmp_path / "turns").read_text().splitlines():
        what, name = line.split()
        if what == "begin":
            busy = {end for other in running for end in other.split("+")}
            assert not busy & {*name.split("+")}
            running.add(name)
        else:
            running.remove(name)
            ended.append(name)
        largest = max(largest, len(running))
    assert largest == most
    every = sorted(folder.of_link(link) for link in ring([f"n{at}" for at in range(number)]))
    assert sorted(ended[:number]) == sorted(ended[number:]) == every


@pytest.mark.slow
def test_links_that_stay_silent_are_given_up_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SILENT_S", -2.0)
    start = time.monotonic()
    said = run(tmp_path, monkeypatch, 4, 3, silent="n1")
    assert time.monotonic() - start < 30
    turns = [line.split()[1] for line in (tmp_path / "turns").read_text().splitlines() if line.startswith("end")]
    assert [turns.count(name) for name in ("n0+n1", "n1+n2", "n2+n3", "n3+n0")] == [1, 1, 3, 3]
    assert said == ["n0–n1, n1–n2, n2–n3, n3–n0: did not start"]  # played links write no state
