"""`benchmarker.profile`: what the commands of `profile` print, as values."""

import json
import re

import numpy as np
import pytest
from support import profiles
from support.launched import allocation, host, step, trace, work

import benchmarker
from benchmarker import UserError

VIEWS = ("kernels", "ops", "scopes", "gemms", "idle", "path", "memory", "ranks")


@pytest.fixture
def launched(tmp_path, monkeypatch) -> str:
    """Two steps of forty kernels each, of different names, on two devices, with an allocation."""
    monkeypatch.chdir(tmp_path)
    events = [step(0, 0, 1000), step(1, 1000, 2000), host("user_annotation", "attn", 5, 600)]
    for at in range(80):
        begin = 10 + 24 * at
        ran = (begin + 3, begin + 5 + at / 10)
        events.append(work((begin, begin + 2), ran, f"kernel_{at % 40}", op="aten::mm", device=at // 79))
    trace(tmp_path, *events, [allocation(11, 1 << 30, 3 << 29, address=1)])
    return "launched.json"


@pytest.mark.parametrize(
    ("view", "options"),
    [
        *((view, {}) for view in VIEWS),
        ("kernels", {"by": "scope", "rule": True, "name": "kernel_1", "step": 1}),
        ("kernels", {"sort": "name", "device": "gpu:0", "stream": "7"}),
        ("ops", {"by": "shape", "phase": "unknown"}),
        ("scopes", {"sort": "scope", "scope": "attn"}),
        ("gemms", {"device": "NVIDIA H100 80GB HBM3", "precision": "tf32", "roof": "vendor"}),
        ("idle", {"by": "stream", "step": 0}),
        ("path", {"step": 1}),
        ("memory", {"by": "op", "device": "gpu:7"}),
    ],
)
def test_a_view_is_what_the_command_prints(command, launched, view, options, capsys):
    made = benchmarker.profile(launched, view=view, **options)
    assert capsys.readouterr() == ("", "")
    words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]
    assert repr(made).replace("`.to_pandas()` has all", "--top=0 shows all") + "\n" == (
        command("profile", view, launched, *words).stdout
    )
    shown = json.loads(command("profile", view, launched, *words, "--top=0", "--json").stdout)
    assert made.to_dict() == shown


@pytest.mark.parametrize(("view", "options"), [("kernels", {}), ("ops", {}), ("scopes", {"phase": "unknown"})])
def test_two_results_give_their_difference(command, launched, tmp_path, view, options):
    (tmp_path / "other").mkdir()
    trace(tmp_path / "other", step(0, 0, 100), work((1, 2), (3, 60), "kernel_1"), work((3, 4), (60, 90), "new"))
    made = benchmarker.profile(launched, tmp_path / "other" / "launched.json", view=view, **options)
    words = [f"--{name}={value}" for name, value in options.items()]
    done = command("profile", view, launched, "other/launched.json", *words, "--top=0", "--json")
    assert made.to_dict() == json.loads(done.stdout)
    assert repr(made).startswith("busy time per step: before ")
    assert {"before_ns", "after_ns", "difference_ns"} <= set(made.to_pandas())


def test_the_frame_is_whole_and_the_first_rows_are_printed(launched):
    made = benchmarker.profile(launched)
    frame = made.to_pandas()
    assert len(frame) == len(made.to_dict()) == 40
    assert {"p95_ns", "std_ns", "launch"} <= set(frame)  # which the command shows only with --wide
    assert re.search(r"^and 10 more, [\d.]+% of the busy time; `\.to_pandas\(\)` has all$", repr(made), re.MULTILINE)
    html = made._repr_html_()
    assert html.count("<tr>") == 1 + 30
    assert "`.to_pandas()` has all" in html
    frame["share"] = 0
    assert made.to_pandas()["share"].sum() == pytest.approx(1)


def test_a_notebook_shows_the_shares_of_the_first_rows(launched, tmp_path):
    pytest.importorskip("matplotlib")
    made = benchmarker.profile(launched)
    (figure,) = made.figures
    assert figure.marks[0].values == tuple(made.frame["share"][:12])
    assert figure.rows == tuple(made.frame["name"][:12])
    assert "The first 12 of 40 are drawn" in made._repr_html_()
    made.save_figure(tmp_path / "busy.png")
    assert len((tmp_path / "busy.csv").read_text().splitlines()) == 1 + 40
    assert benchmarker.profile(launched, name="none").figures == ()


def test_several_tables_are_frames(launched):
    memory = benchmarker.profile(launched, view="memory")
    assert {name: len(frame) for name, frame in memory.frames.items()} == {"peaks": 1, "at_peak": 2, "timeline": 1}
    assert memory.to_pandas()["bytes"].tolist() == [1 << 30, 1 << 29]
    idle = benchmarker.profile(launched, view="idle", by="step")
    assert idle.to_pandas()["step"].tolist() == [0, 1]
    ranks = benchmarker.profile(launched, view="ranks").to_pandas()
    assert ranks[["rank", "device"]].to_numpy().tolist() == [[0, "gpu:0"], [1, "gpu:1"]]


def test_nothing_of_the_kind_is_an_empty_frame_with_the_reason(tmp_path):
    (tmp_path / "t.pb").write_bytes(profiles.small_cpu_space())
    made = benchmarker.profile(tmp_path / "t.pb", view="idle")
    assert made.to_pandas().empty
    assert "no accelerator executed anything" in repr(made)
    assert made.to_dict()["bound"] is None


def test_a_number_of_a_frame_chooses_a_step(launched):
    chosen = benchmarker.profile(launched, step=np.int64(1))
    assert chosen.to_dict() == benchmarker.profile(launched, step=1).to_dict()
    assert chosen.to_pandas()["count"].sum() < benchmarker.profile(launched).to_pandas()["count"].sum()


def test_html_needs_no_network_and_a_hostile_name_is_text(tmp_path):
    trace(tmp_path, work((0, 1), (2, 3), "<script src='https://x'>\x1b[2J"))
    for view in VIEWS[:-1]:
        made = benchmarker.profile(tmp_path / "launched.json", view=view)
        assert "<script" not in made._repr_html_()
        assert "\x1b" not in made._repr_html_() + repr(made)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"view": "kernel"}, "no view is named 'kernel'; there are: kernels, ops, scopes, gemms, idle, path, memory"),
        ({"bye": "op"}, "the view kernels has no option 'bye'; it has name, category, scope, phase, device"),
        ({"view": "path", "by": "op"}, "the view path has no option 'by'; it has step"),
        ({"view": "ranks", "device": "cpu"}, "the view ranks has no option 'device'; it has no options"),
        ({"by": "leaf"}, "by=leaf: not one of name, shape, launch, category"),
        ({"step": -1}, "step=-1: must be at least 0"),
        ({"step": 0.5}, "step=0.5: not a whole number"),
        ({"name": "("}, "--name=(: not a regular expression"),
        ({"category": "none"}, "--category=none: the categories are"),
    ],
)
def test_errors_are_exceptions(launched, options, text, capfd):
    with pytest.raises(UserError, match=re.escape(text)):
        benchmarker.profile(launched, **options)
    assert capfd.readouterr() == ("", "")


def test_results_that_a_view_cannot_show_are_refused(launched, tmp_path):
    with pytest.raises(UserError, match="no result is given"):
        benchmarker.profile()
    with pytest.raises(UserError, match=r"nowhere\.json: No such file"):
        benchmarker.profile(tmp_path / "nowhere.json")
    with pytest.raises(UserError, match="3 RESULTs were given"):
        benchmarker.profile(*[launched] * 3)
    for view in ("gemms", "idle", "path", "memory"):
        with pytest.raises(UserError, match="2 results are given; this view shows one"):
            benchmarker.profile(launched, launched, view=view)
    with pytest.raises(UserError, match="sorted by their difference"):
        benchmarker.profile(launched, launched, sort="total")
