"""The parent's side of a trial: start its worker or its ranks, listen until all have ended, and find what failed.

Each rank is a worker with pipes of its own, on this machine or behind the agent of its node. Rank 0 binds a port and
sends its address, which is passed on to the others; from then on the ranks talk to each other (`process_group.py` in
`worker`). If one of them fails, the others usually fail because of it, or wait for it without end: so failures are
gathered for a moment, the likeliest cause is chosen among them (`agent.cause`), and all ranks are ended. Over several
nodes, a rank that has only lost its peer is not believed before all nodes were asked whether they are there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from benchmarker.agent.cause import RankState, ending_of, is_consequence
from benchmarker.agent.remote import (
    AGAIN_S,
    Agent,
    LostNodeError,
    Nodes,
    RemoteRank,
    give_up_silent,
    readings_of,
    start_sampling,
)
from benchmarker.power import samplers
from benchmarker.worker.launch import GRACE_S, Ending, Environment, Event, environment_of, run_worker, started
from benchmarker.worker.pipes import Child, listen
from benchmarker.worker.protocol import Address, Command, Task

GATHER_S = 2.0
"""Time after the first failure in which others are noted: the first is seldom the cause."""
LATE_S = 5.0
"""Time after that in which it is known that a rank has ended, by which another one lost its connection."""
PLACES_S = 1.0
"""Time that the ranks are given after the timeout to send where they are."""


def run_workers(
    task: Task,
    environment: Environment,
    timeout_s: float,
    logs: Sequence[Path],
    on_event: Callable[[Event], None],
    nodes: Nodes | None = None,
) -> Ending:
    """Run a worker to its end, or several ranks, which have a log each, and pass on what it or rank 0 sends.

    If a rank fails, all are ended within seconds, and the likeliest cause is passed on or is in the ending that is
    returned. However this function ends, even by an interrupt, all ranks and what they started are ended too. Over
    several nodes, each finds its own `environment`, and their machines are passed on too, and for a trial what their
    meters can read; the time of the rest is not that of the worker. Raises LostNodeError if nothing can be started on a
    node that is lost, and `UserError` if the launcher refuses it, or if the software of the nodes differs.
    """
    if len(logs) == 1:
        return run_worker(task, environment, timeout_s, logs[0], on_event)
    start = time.monotonic()
    tasks = [
        msgspec.structs.replace(task, rank=rank, sensors=task.sensors if rank == 0 else {}) for rank in range(len(logs))
    ]
    ranks = [RankState(rank, on_event if rank == 0 else _ignore) for rank in range(len(logs))]
    agents: list[Agent] = []
    with ExitStack() as stack:
        children: Sequence[Child]
        if nodes:
            agents = stack.enter_context(nodes.agents.on(nodes.names))
        try:
            if nodes:
                start += _prepare(agents, nodes, task, on_event)
                children = _start_on_nodes(agents, nodes, tasks, logs, ranks)
            else:
                children = _start_here(stack, environment, tasks, logs, ranks)
        except LostNodeError as error:
            return Ending(None, False, time.monotonic() - start, node=error.node, lost=str(error))
        timed_out, failed = _listen_until_failure(ranks, children, start + timeout_s, nodes, agents)
    wall_s = time.monotonic() - start
    ending = ending_of(ranks, timed_out, failed, wall_s, on_event)
    return dataclasses.replace(ending, readings=readings_of(agents, nodes)) if nodes else ending


def _start_here(
    stack: ExitStack,
    environment: Environment,
    tasks: Sequence[Task],
    logs: Sequence[Path],
    ranks: Sequence[RankState],
) -> list[Child]:
    """Start all ranks on this machine; returns whom to listen to."""
    children: list[Child] = []
    for rank, task, log in zip(ranks, tasks, logs, strict=True):
        shown = environment_of(task.cases[0], rank.number, environment)
        worker = stack.enter_context(started(task, shown, log, partial(_on_event, rank, ranks)))
        rank.worker = worker
        children.append(worker)
    return children


def _prepare(agents: Sequence[Agent], nodes: Nodes, task: Task, on_event: Callable[[Event], None]) -> float:
    """Pass on the machines and, for a trial, what their meters read; returns their rest, s. Raises LostNodeError."""
    on_event({"part": {"machines": [agent.machine for agent in agents]}})
    case = task.cases[0]
    if task.kind != "trial" or len(task.cases) > 1 or not samplers.meters(case.measuring.power):
        return 0.0
    start = time.monotonic()
    on_event({"stage": "rest"})
    start_sampling(agents, nodes, case)
    if lost := next((agent for agent in agents if agent.lost), None):
        raise LostNodeError(lost.node, lost.lost)
    on_event({"meters": {agent.node: nodes.probes[agent.node] for agent in agents}})
    rest_s = time.monotonic() - start
    on_event({"took": ["rest", rest_s]})
    return rest_s


def _start_on_nodes(
    agents: Sequence[Agent], nodes: Nodes, tasks: Sequence[Task], logs: Sequence[Path], ranks: Sequence[RankState]
) -> Sequence[Child]:
    """Start the ranks by the agents of the nodes, each as many; returns whom to listen to."""
    count = len(ranks) // len(agents)
    peer_address = nodes.peer_address
    for number, agent in enumerate(agents):
        mine = slice(number * count, (number + 1) * count)
        for rank in ranks[mine]:
            rank.node = agent.node
            rank.worker = RemoteRank(rank.number, agent, partial(_on_event, rank, ranks))
        own_tasks = [msgspec.structs.replace(task, peer_address=peer_address) for task in tasks[mine]]
        agent.begin([rank.worker for rank in ranks[mine] if isinstance(rank.worker, RemoteRank)], own_tasks, logs[mine])
    return agents


def _listen_until_failure(
    ranks: Sequence[RankState], children: Sequence[Child], deadline: float, nodes: Nodes | None, agents: Sequence[Agent]
) -> tuple[bool, Sequence[RankState]]:
    """Listen until all ranks have ended, one has failed, or time is up; returns whether it is, and who has failed.

    What is left is asked to end.
    """

    def all_ended() -> bool:
        return all(rank.worker.status is not None or rank.worker.lost for rank in ranks)

    listen(children, deadline, lambda: all_ended() or any(rank.has_failed() for rank in ranks))
    timed_out = not all_ended() and not any(rank.has_failed() for rank in ranks)
    if timed_out:
        for rank in ranks:
            rank.worker.send(Command(stacks=True))
        listen(children, time.monotonic() + PLACES_S, lambda: all(rank.place for rank in ranks))
    elif not all_ended():
        listen(children, min(deadline, time.monotonic() + GATHER_S), lambda: all(rank.has_failed() for rank in ranks))
    if nodes and _may_lack_a_node(ranks, timed_out):
        _find_lost_nodes(ranks, nodes, agents)
        timed_out = timed_out and not any(rank.worker.lost for rank in ranks)
    # What follows ends the others, which is no failure of theirs.
    failed = [rank for rank in ranks if rank.has_failed()]
    for rank in failed:
        rank.failed_with, rank.lost = rank.worker.status, rank.worker.lost
    if any(rank.worker.status is None for rank in ranks):
        for rank in ranks:
            rank.worker.terminate()
        listen(children, time.monotonic() + GRACE_S, all_ended)
    return timed_out, failed


def _may_lack_a_node(ranks: Sequence[RankState], timed_out: bool) -> bool:
    """Whether a node may be gone: no rank of it has answered, or all failures are that others are gone."""
    if timed_out:
        return {rank.node for rank in ranks if rank.place} != {rank.node for rank in ranks}
    failed = [rank for rank in ranks if rank.has_failed()]
    return bool(failed) and all(is_consequence(rank) for rank in failed)


def _find_lost_nodes(ranks: Sequence[RankState], nodes: Nodes, agents: Sequence[Agent]) -> None:
    """Ask all agents whether they are there, and then the launcher; a cause that is reported meanwhile is enough."""

    def is_known() -> bool:
        return any(rank.has_failed() and not is_consequence(rank) for rank in ranks)

    for agent in agents:
        agent.ping()
    start = time.monotonic()
    listen(agents, start + LATE_S, is_known)
    listen(agents, start + AGAIN_S, lambda: is_known() or all(agent.has_answered or agent.trouble for agent in agents))
    if not is_known():
        give_up_silent(agents, AGAIN_S, lambda agent: agent.has_answered)
    if not is_known():
        for agent in agents:
            agent.ping()  # what the launcher takes to answer must not seem to them as if they were forgotten
        down = nodes.agents.down()
        for agent in agents:
            if agent.node in down:
                agent.given_up = "is on a node that the launcher says is down"


def _ignore(event: Event) -> None:
    """Pass on nothing."""


def _on_event(rank: RankState, ranks: Sequence[RankState], event: Event) -> None:
    """Process an event of a rank."""
    rank.done = rank.done or "done" in event
    if "failure" in event:
        rank.failure = rank.failure or event
    elif "place" in event:
        rank.place, rank.waits, rank.synchronizes = event["place"], event["waits"], event["synchronizes"]
    elif "address" in event:
        address = msgspec.convert(event["address"], Address)
        for other in ranks[1:]:
            other.worker.send(Command(address=address))
    else:
        rank.pass_on(event)
