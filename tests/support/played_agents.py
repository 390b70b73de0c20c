"""An allocation whose nodes are shells that answer as agents do; what is started on them is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarker import Allocation, Case, Launcher
from benchmarker.agent.messages import Present
from benchmarker.agent.remote import Agents
from benchmarker.machine import description
from benchmarker.records.job import Installed

AGENT = """
echo "$1" >>"$0/steps"
IFS= read -r here <"$0/here"
tell() { printf '%s\\n' "{\\"type\\":\\"FromRank\\",\\"rank\\":$1,$2}"; }
over() { printf '{"type":"TrialEnded"}\\n'; }
printf '%s\\n' "$here"
while IFS= read -r line; do
  case "$line" in
    *'"type":"Ping"'*) printf '%s\\n' "$here" ;;
    *'"type":"EndRanks"'*) over ;;
    *'"type":"StartRanks"'*) BEGIN ;;
  esac
done
"""
DONE = """tell $1 '"event":{"type":"Done"}'; tell $1 '"status":0'; over"""
"""What an agent does whose rank, which has the number of its node, ends well."""
LOST_PEER = (
    """tell $1 '"event":{"type":"Failed","lost_peer":true,"""
    """"failure":{"kind":"exception","message":"reset by peer","stage":"timed"}}'"""
)
"""What an agent does whose rank has lost another."""


class Played(Launcher):
    """Nodes named by numbers, with one rank each; `begins` is what their agents do when they are to begin."""

    def __init__(self, folder: Path, begins: Sequence[str]) -> None:
        self.folder = folder
        self.begins = begins
        self.names = [str(number) for number in range(len(begins))]
        self.installed = Installed("3", None, {})
        (folder / "here").write_bytes(msgspec.json.encode(Present(description.describe(), self.installed)) + b"\n")

    def agents(self) -> Agents:
        """The agents of a run on these nodes."""
        return Agents(self, Allocation("local", "7", self.names, 0), self.installed)

    def steps(self) -> list[str]:
        """The nodes of all steps so far."""
        return sorted((self.folder / "steps").read_text().split(), key=int)

    def case(self) -> Case:
        """A case with a rank on each node."""
        nodes = len(self.names)
        return Case(problem="nap", framework="toy", device="cpu", params={}, devices=nodes, nodes=nodes, ranks=nodes)

    def command(self, nodes: Sequence[str], program: Sequence[str]) -> Sequence[str]:
        """Return a shell that plays the agent."""
        (node,) = nodes
        return ["/bin/sh", "-c", AGENT.replace("BEGIN", self.begins[int(node)]), str(self.folder), node]

    def _none(self, *_: Any) -> Any:
        raise NotImplementedError

    allocation: Any = _none
    directives: Any = _none
    submit: Any = _none
    states: Any = _none
    cancel: Any = _none
