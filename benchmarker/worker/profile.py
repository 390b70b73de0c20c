"""The worker's side of a profile: some steps of a case under the framework's profiler, in every rank of a gang."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker.worker.gang import Follower, Leader
from benchmarker.worker.protocol import folder_of
from benchmarker.worker.stages import Stages
from benchmarker.worker.trial import failures_sent, open_team

if TYPE_CHECKING:
    from benchmarker.worker.parent import Parent
    from benchmarker.worker.protocol import Events, Request
    from benchmarker.worker.share import Solo


def profile(request: Request, events: Events, parent: Parent) -> None:
    """Trace some steps, with a synchronisation after each; the warm-up is not in the trace. Any error is sent."""
    (case,) = request.cases
    stages = Stages(events)
    teams: list[Solo | Follower] = []
    with failures_sent(teams, stages):
        folder = folder_of(Path(request.folder), request.rank)
        folder.mkdir()
        with stages("open"):
            teams.append(open_team(request, case, stages, parent, folder))
        (team,) = teams
        variables = team.bench.describe()["variables"]
        if isinstance(team, Follower):
            team.follow(stages)
        else:
            _trace(team, stages)
        events.send(done=True, variables=variables)


def _trace(team: Solo, stages: Stages) -> None:
    """Profile all ranks; each writes its file when the last step has ended."""
    measuring = team.bench.case.measuring
    with stages("build"):
        team.all("build")
    with stages("warm-up"):
        for _ in range(measuring.warmup_steps + 1):
            team.stepper.block(1)
    with stages("profile"):
        team.all("begin_profile")
        for number in range(measuring.profile_steps):
            duration_ns = max(team.all("profiled_step", number))
            stages.tell(number + 1, duration_ns / 1e9)
        team.all("end_profile")
    if isinstance(team, Leader):
        team.end()
