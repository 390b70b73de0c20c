"""Fleets whose nodes are played by processes of this machine: who is named, and what becomes of nodes that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.played import ENTRY_POINTS, PLAYED
from support.toy import install

PLAN = """
problem = "nap"
framework = "toy"
trials = 1
[measuring]
power = "none"
blocks = {blocks}
[axes]
ms = {ms}
"""
NODES = "node1,node2,node3,node4"


class Fleet:
    """The command line on the first node of an allocation of played nodes."""

    def __init__(self, program: Any, folder: Path, path: str) -> None:
        self.program, self.folder, self.path = program, folder, path
        self.results = folder / "results"

    def run(self, *options: str, unwell: str = "", nodes: str = NODES, plan: str = "", **env: str) -> Any:
        (self.folder / "naps.toml").write_text(plan or PLAN.format(ms=[20.0, 10.0], blocks=10))
        variables = {"PLAYED_NODES": nodes, "PLAYED_UNWELL": unwell, "PYTHONPATH": self.path, **env}
        return self.program("nodes", "run", "naps.toml", *options, env=variables, timeout=300)

    def show(self, *words: str) -> Any:
        return self.program("nodes", "show", str(self.one), *words, env={"PYTHONPATH": self.path})

    @property
    def one(self) -> Path:
        (found,) = self.results.iterdir()
        return found


@pytest.fixture
def fleet(program: Any, toy_folder: Path, tmp_path: Path) -> Fleet:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "played", ENTRY_POINTS, PLAYED)
    return Fleet(program, tmp_path, f"{site}:{toy_folder}")


@pytest.mark.slow
def test_a_node_made_slow_is_named_among_four(fleet: Fleet) -> None:
    """Its steps take 8% longer; the evidence is measured in real time, on a machine that four nodes share."""
    done = fleet.run(unwell="node3=0.08")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "node3" in done.stdout.splitlines()[0]
