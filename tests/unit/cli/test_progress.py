"""How much progress is printed: as usual, more with --verbose, only failures with --quiet."""

import io
import re
import time
from pathlib import Path

import click
import pytest
from rich.console import Console
from support.commands import named
from support.records import make_record

from benchmarker.api.case import Measuring
from benchmarker.cli.commands import LINES
from benchmarker.cli.display.progress import TIMING, WAITING, Progress, progress_options, working
from benchmarker.records.record import Failure, Harness
from benchmarker.worker.protocol import StageBegan, StageEnded, StepsDone

ROOT = Path(__file__).parents[3]
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


STEP = (0.0101, 0.01, 0.0102, 0.02)


@pytest.fixture
def screen(monkeypatch):
    """A terminal of a number of columns as standard error; its file has what was written."""

    def make(columns=80, file=None, **more):
        made = Console(file=file or io.StringIO(), width=columns, force_terminal=True, **more)
        monkeypatch.setattr("benchmarker.cli.display.progress.console", lambda **_: made)
        return made.file

    return make


def drawn(file):
    """The lines that were drawn, one below the other, without what moves the cursor and what only erases."""
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", file.getvalue()))
    return [line for line in lines if line.strip()]


def timed(progress, *, blocks=100, left_s=None, title="[2/9] toy nap, trial 0"):
    record = make_record(list(STEP), case={"measuring": Measuring(blocks=blocks)})
    progress.begin(title, record.case, left_s)
    progress.on_event(StageBegan("timed"))
    for done, step_s in enumerate(STEP, 1):
        progress.on_event(StepsDone(done, step_s))
    return record


def test_a_terminal_shows_what_is_waited_for_the_last_steps_and_the_time_left(screen):
    file = screen()
    with Progress() as progress:
        record = timed(progress, left_s=200.0)
        progress.end([record])
    lines = drawn(file)
    assert lines[0] == "[2/9] toy nap, trial 0: starting a process, about 3 min left"
    assert lines[1] == "[2/9] toy nap, trial 0: timing, about 3 min left"
    assert lines[2] == "[2/9] toy nap, trial 0: block 1 of 100 10.1 ms per step, about 3 min left"
    assert lines[5] == "[2/9] toy nap, trial 0: block 4 of 100 ▁▁▁█ 20 ms per step, about 3 min left"
    assert lines[6] == "[2/9] toy nap, trial 0: done in 2.0 s, 10.15 ms per step ▁▁▁█"


def test_the_time_left_passes_and_is_not_told_before_there_is_one(screen, monkeypatch):
    file = screen()
    clock = {"now": 0.0}
    monkeypatch.setattr("benchmarker.cli.display.progress.time.monotonic", lambda: clock["now"])
    with Progress() as progress:
        timed(progress)
        assert "left" not in file.getvalue()
        progress.begin("[3/9] toy nap, trial 0", make_record().case, 60.0)
        for clock["now"], left in ((20.0, ", about 40 s left"), (59.5, "")):
            progress.on_event(StageBegan("timed"))
            assert drawn(file)[-1] == f"[3/9] toy nap, trial 0: timing{left}"


@pytest.mark.parametrize("columns", range(24, 121, 8))
def test_a_line_fits_every_terminal_and_says_what_runs(screen, columns):
    file = screen(columns)
    with Progress() as progress:
        timed(progress, left_s=7300.0, title="[12/90] tensorflow attention, trial 11")
    assert max(map(len, drawn(file))) < columns
    assert drawn(file)[-1].startswith("[12/")
    if columns >= 40:
        assert "block 4 of 100" in drawn(file)[-1]
    assert ("▁▁▁█" in drawn(file)[-1]) == (columns >= 40)
    assert ("left" in drawn(file)[-1]) == (columns >= 56)


def test_a_hostile_name_controls_no_terminal(screen):
    file = screen()
    with Progress() as progress:
        progress.begin("[1/2] \x1b[31mred\r\n[bold] 漢字", make_record().case, None)
        progress.on_event(StageBegan("\x1b[31mcheck"))
    assert "\x1b[31m" not in file.getvalue()
    assert drawn(file)[-1] == r"[1/2] \x1b[31mred\x0d\x0a[bold] 漢字: \x1b[31mcheck"


def test_a_terminal_that_cannot_encode_bars_gets_ascii(screen):
    written = io.BytesIO()
    screen(file=io.TextIOWrapper(written, encoding="ascii", write_through=True))
    with Progress() as progress:
        timed(progress)
    assert b"block 4 of 100 ___# 20 ms per step" in written.getvalue()


def test_time_passes_on_the_screen_only_where_no_block_is_timed(screen, monkeypatch):
    monkeypatch.setattr("benchmarker.cli.display.progress.REDRAW_S", 0.01)
    file = screen()
    with Progress() as progress:
        progress.begin("[1/1] toy nap, trial 0", make_record().case, None)
        progress.on_event(StageBegan("compile"))
        before = len(drawn(file))
        deadline = time.monotonic() + 5
        while len(drawn(file)) < before + 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(drawn(file)) >= before + 3
        assert drawn(file)[-1] == "[1/1] toy nap, trial 0: compiling, 0 s"
        for stage in ("rest", "preheat", "timed", "tokens", "device", "local", "profile"):
            progress.on_event(StageBegan(stage))
            before = file.getvalue()
            time.sleep(0.03)
            assert file.getvalue() == before, stage


def test_nothing_is_drawn_quietly_nor_on_a_terminal_that_cannot_move_its_cursor(screen):
    file = screen()
    with click.Context(click.Command("run")) as context:
        context.meta["benchmarker.cli.display.progress"] = "quiet"
        with Progress() as progress:
            progress.end([timed(progress)])
    assert file.getvalue() == ""
    file = screen(_environ={"TERM": "dumb"})
    with Progress() as progress:
        progress.end([timed(progress)])
    assert file.getvalue() == "[2/9] toy nap, trial 0: done in 2.0 s\n"


def test_every_stage_that_a_worker_has_is_in_words():
    sources = " ".join(path.read_text() for path in (ROOT / "benchmarker").rglob("*.py"))
    stages = set(re.findall(r'stages\("(\w+)"\)|StageBegan\("([\w ]+)"\)', sources))
    assert {one or other for one, other in stages} <= WAITING.keys() | TIMING.keys()
    assert not WAITING.keys() & TIMING.keys()
