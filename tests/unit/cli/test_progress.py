"""How much progress is printed: as usual, more with --verbose, only failures with --quiet."""

import click
import pytest
from support.commands import named
from support.records import make_record

from benchmarker.cli.commands import LINES
from benchmarker.cli.display.progress import Progress, progress_options, working
from benchmarker.records.record import Failure, Harness
from benchmarker.worker.protocol import StageBegan, StageEnded, StepsDone

RUNNING = (
    *(
        "run",
        "sweep",
        "ab",
        "bisect",
        "ladder",
        "plan show",
        "plan run",
        "suite run",
        "ceilings",
        "check",
        "serve-load",
    ),
    *("nodes run", "card", "history"),
)


@click.command()
@progress_options
@click.option("--fails", is_flag=True)
def trial(fails):
    """Report a trial as a run does."""
    failure = Failure(stage="timed", kind="exception", message="told to") if fails else None
    record = make_record(error=failure, status="failed" if fails else "ok")
    with working("querying"), Progress() as progress:
        progress.say("left out: a case")
        progress.begin("[1/1] toy nap, trial 0", record.case, None)
        for stage in ("check", "preheat"):
            progress.on_event(StageBegan(stage))
            progress.on_event(StageEnded(stage, 0.25))
        progress.end([record])


@pytest.fixture
def said(capsys):
    """What is said on standard error; nothing goes to standard output."""

    def run(*words):
        trial.main(words, standalone_mode=False)
        out, err = capsys.readouterr()
        assert out == ""
        return err.splitlines()

    return run


def test_as_usual_a_trial_has_a_line(said):
    assert said() == ["left out: a case", "[1/1] toy nap, trial 0: done in 2.0 s"]


def test_quiet_prints_notes_and_failures_alone(said):
    assert said("-q") == ["left out: a case"]
    assert said("--quiet", "--fails")[1:] == ["[1/1] toy nap, trial 0: FAILED in timed after 2.0 s: told to"]


def test_verbose_prints_every_stage_and_its_time(said):
    stages = ["check", "check took 0.25 s", "warm-up", "warm-up took 0.25 s", "done in 2.0 s"]
    lines = [f"[1/1] toy nap, trial 0: {text}" for text in stages]
    assert said("-v") == ["querying", "left out: a case", *lines]


def test_both_at_once_are_refused(command):
    done = command("run", "--framework=numpy", "--problem=gemm", "-v", "-q")
    assert done.returncode == 2
    assert "--verbose and --quiet exclude each other" in done.stderr


@pytest.mark.parametrize("name", LINES)
def test_the_commands_that_run_things_take_both(name):
    spelt = {spelling for param in named(name).params for spelling in param.opts}
    assert ({"-v", "--verbose", "-q", "--quiet"} <= spelt) == (name in RUNNING)


def test_a_quiet_run_prints_its_table_and_where_its_records_are(cli):
    done = cli("run", "--framework=toy", "--problem=nap", "--power=none", "--blocks=2", "-q")
    assert done.returncode == 0
    assert "toy" in done.stdout
    assert [line.partition(":")[0] for line in done.stderr.splitlines() if line] == ["records"]


def test_the_time_of_a_duet_contains_both_profiles(capsys):
    """One process of 10 s, then profiles of 3 s and of 4 s; each record has the time of its own."""
    harness = [Harness(wall_s=13.0, stages_s={"profile": 3.0}), Harness(wall_s=14.0, stages_s={"profile": 4.0})]
    records = [make_record(harness=each) for each in harness]
    with Progress() as progress:
        progress.begin("[1/1] a duet", records[0].case, None)
        progress.end(records)
    assert capsys.readouterr().err == "[1/1] a duet: done in 17.0 s\n"


def test_while_tokens_are_timed_requests_are_counted(capsys):
    with Progress() as progress:
        progress.begin("[1/1] toy chat", make_record().case, None)
        progress._verbose = True
        progress.on_event(StageBegan("tokens"))
        progress.on_event(StepsDone(3, 0.04))
    assert capsys.readouterr().err.endswith("[1/1] toy chat: tokens, request 3, 40 ms per token\n")
