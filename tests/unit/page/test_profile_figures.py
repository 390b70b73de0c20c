"""Icicles and time lines: their sums are those of `profile kernels`, `scopes` and `idle`, to the nanosecond."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.launched import step, trace, work
from support.records import make_record

from benchmarker.library.profiles.scopes import OUTSIDE, Scopes
from benchmarker.library.profiles.statistics import Kernels
from benchmarker.library.profiles.timeline import Idle
from benchmarker.page import profiled as limits
from benchmarker.page.icicle import Side, icicle
from benchmarker.page.page_model import Figure
from benchmarker.page.render import render
from benchmarker.page.timeline import MOST_LANES, timeline, typical_step
from benchmarker.page.trace_marks import LEVELS
from benchmarker.traces.ingest import ingest
from benchmarker.traces.profile_files import encode

FIXTURES = Path(__file__).parents[2] / "fixtures/traces"
SHARED = Path(__file__).parents[4] / "shared/traces"
SMALL = ["h200-torch-gpt2.json.gz", "h200-jax-gpt2.xplane.pb.gz", "torch-fsdp.rank0.json.gz", "jax-tp.xplane.pb.gz"]
OTHERS = sorted({path.name for path in FIXTURES.glob("*.gz")} - set(SMALL))
REAL = [*SHARED.glob("*.json.gz"), *SHARED.glob("*.pb")]
TRACES = [
    *(FIXTURES / name for name in SMALL),
    *(pytest.param(path, marks=pytest.mark.slow) for path in [*(FIXTURES / name for name in OTHERS), *sorted(REAL)]),
]
ALL = 10**9


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def ingested(path):
    return ingest(path)


def tree(mark):
    """Every node with the levels and labels of those around it, the outermost first."""
    above, found = [], []
    for node in mark.nodes:
        above[node.depth :] = [(LEVELS[node.level], mark.labels[node.label] if node.label >= 0 else "")]
        found.append((node, tuple(above)))
    return found


def sums(pairs):
    """Sums by key, without those that are 0."""
    found = Counter()
    for key, value in pairs:
        found[key] += value
    return {key: value for key, value in found.items() if value}


def listed(frame, keys, column):
    return sums((tuple(row[key] for key in keys), row[column]) for row in frame.to_dict("records"))


@pytest.fixture
def whole_names(monkeypatch):
    monkeypatch.setattr("benchmarker.page.icicle.WIDEST_LABEL", ALL)
    monkeypatch.setattr("benchmarker.page.timeline.WIDEST_LABEL", ALL)


@pytest.mark.usefixtures("whole_names")
def test_the_icicle_has_the_times_of_profile_kernels_and_scopes(path, ingested):
    (mark,) = icicle("key", "title", [Side("", 0, ingested)], (), ALL).marks
    nodes = tree(mark)
    assert mark.nodes[0].time_ns == (ingested.trace.busy_ns,)
    leaves = [(node, above) for node, above in nodes if node.category >= 0]
    kernels = Kernels().of([path]).frame
    names = (((above[-1][1], mark.categories[node.category]), node) for node, above in leaves)
    in_icicle = [(key, node.time_ns[0], node.rows[0]) for key, node in names]
    assert sums((key, time) for key, time, _ in in_icicle) == listed(kernels, ["name", "category"], "busy_ns")
    assert sums((key, count) for key, _, count in in_icicle) == listed(kernels, ["name", "category"], "count")

    scopes = Scopes().of([path]).frame
    outermost = [
        ((above[-1][1], above[1][1]), node.time_ns[0]) for node, above in nodes if above[-1] not in above[:-1]
        if above[-1][0] == "scope"
    ]  # fmt: skip
    inclusive = listed(scopes[scopes["scope"] != OUTSIDE], ["scope", "phase"], "inclusive_ns")
    assert sums(outermost) == inclusive
    own = []
    for node, above in leaves:
        around = [label for level, label in above if level == "scope"]
        own.append(((around[-1] if around else OUTSIDE, above[1][1]), node.time_ns[0]))
    assert sums(own) == listed(scopes, ["scope", "phase"], "root_ns")


@pytest.mark.parametrize("most", [5, 60, ALL])
def test_what_is_too_small_is_drawn_together_and_nothing_is_lost(ingested, most):
    (mark,) = icicle("key", "title", [Side("", 0, ingested)], (), most).marks
    drawn = [node for node in mark.nodes if LEVELS[node.level] != "rest"]
    assert len(drawn) <= most + 1
    inner = Counter()
    above = []
    for node in mark.nodes:
        above[node.depth :] = [node]
        if node.depth:
            inner[id(above[-2])] += node.time_ns[0]
    assert all(inner[id(node)] in (0, node.time_ns[0]) for node in mark.nodes)
    assert mark.nodes[0].time_ns == (ingested.trace.busy_ns,)


def by_group(mark):
    return sums((mark.groups[box.group][:2], box.time_ns) for box in mark.boxes if box.group >= 0)


@pytest.mark.usefixtures("whole_names")
def test_the_time_line_has_the_times_of_profile_kernels_and_idle(path, ingested):
    (mark,) = timeline("key", Side("", 0, ingested), (), ALL).marks
    number = typical_step(ingested)
    kernels = Kernels(step=number).of([path]).frame
    boxes = [box for box in mark.boxes if box.group >= 0 and mark.groups[box.group].family in ("work", "copy")]
    in_line = sums((mark.labels[box.label] if box.label >= 0 else "", box.time_ns) for box in boxes if box.rows == 1)
    deep = sums((mark.groups[box.group].name, box.time_ns) for box in boxes if box.rows > 1)
    if not deep:
        assert in_line == {name: ns for (name,), ns in listed(kernels, ["name"], "busy_ns").items()}
    assert sum(box.time_ns for box in boxes) == kernels["busy_ns"].sum()
    idle = Idle(step=number).of([path]).frame
    causes = {name: ns for (name, family), ns in by_group(mark).items() if family == "idle"}
    expected = idle[idle["state"] == "idle"] if len(idle) else idle
    assert causes == (
        {cause: ns for (cause,), ns in listed(expected, ["cause"], "time_ns").items()} if len(idle) else {}
    )


@pytest.mark.parametrize("most", [0, 40, 400])
def test_shorter_rows_are_summed_by_category_and_cause(ingested, most):
    (few,), (every,) = (timeline("key", Side("", 0, ingested), (), number).marks for number in (most, ALL))
    kinds = {group[:2] for group in every.groups if group.family != "host"}
    assert {key: ns for key, ns in by_group(few).items() if key in kinds} == {
        key: ns for key, ns in by_group(every).items() if key in kinds
    }
    assert sum(box.rows for box in few.boxes) == sum(box.rows for box in every.boxes)
    assert sum(box.time_ns for box in few.boxes) == sum(box.time_ns for box in every.boxes)
    assert len(few.lanes) <= MOST_LANES + 1
    assert all(0 <= box.begin_ns <= box.begin_ns + box.span_ns <= few.length_ns for box in few.boxes)


def test_the_longest_are_in_the_data(ingested):
    side = Side("", 0, ingested)
    parts, line = icicle("key", "title", [side], (), ALL), timeline("key", side, (), ALL)
    times = [node.time_ns[0] for node in parts.marks[0].nodes if node.category >= 0]
    listed_ns = [round(row[5] * 1e9) for row in parts.data.rows]
    assert listed_ns == sorted(times, reverse=True)[: len(listed_ns)]
    spans = {(box.begin_ns, box.span_ns) for box in line.marks[0].boxes}
    rows = [(round(begin * 1e9), round(duration * 1e9)) for _, begin, duration, *_ in line.data.rows]
    assert [span for _, span in rows] == sorted((span for _, span in rows), reverse=True)
    if all(box.rows == 1 for box in line.marks[0].boxes):  # otherwise rows that nest deep are drawn together
        assert set(rows) <= spans


def test_the_difference_has_the_times_of_profile_kernels():
    one, two = (FIXTURES / name for name in SMALL[:2])
    figure = icicle("key", "title", [Side("a", 0, ingest(one)), Side("b", 1, ingest(two))], (), ALL)
    (mark,) = figure.marks
    assert mark.steps == (3, 3)
    assert "One profile of each side gives no verdict" in figure.caption
    frame = Kernels(by="category").of([one, two]).frame
    leaves = [node for node in mark.nodes if node.category >= 0]
    for side, column in enumerate(("before_ns", "after_ns")):
        own = sums((mark.categories[node.category], node.time_ns[side] / mark.steps[side]) for node in leaves)
        assert own == pytest.approx({name: ns for (name,), ns in listed(frame, ["category"], column).items()})


def test_scopes_of_both_sides_stand_in_the_same_place_although_one_has_modules_around_them():
    """JAX names the modules of a model, `Gpt2Model/h.0/attn_qkv`, PyTorch only the scope."""
    sides = [Side(name[:9], place, ingest(FIXTURES / name)) for place, name in enumerate(SMALL[:2])]

    def placed(*of):
        (mark,) = icicle("key", "title", of, (), ALL).marks
        return {path[1:]: node.time_ns for node, path in tree(mark) if path[-1][0] == "scope"}

    of_jax = [tuple(label for _, label in path) for path in placed(sides[1])]
    assert ("forward", "Gpt2Model", "h.0", "mlp_fc") in of_jax
    both = placed(*sides)
    for phase, name in (("forward", "mlp_fc"), ("backward", "mlp_fc"), ("forward", "lm_head")):
        assert min(both[("phase", phase), ("scope", name)]) > 0
    frame = Scopes().of([FIXTURES / SMALL[1]]).frame
    of_part = frame[(frame["scope"] == "mlp_fc") & (frame["phase"] == "forward")]
    assert not any("Gpt2Model" in label for path in both for _, label in path)
    assert both[("phase", "forward"), ("scope", "mlp_fc")][1] == of_part["root_ns"].sum(), frame.columns


def test_overlapping_kernels_share_each_moment(tmp_path):
    """Kernels at 10 to 20 µs and at 15 to 25 µs on two streams: 5 µs alone and half of 5 µs each."""
    found = trace(tmp_path, step(0, 0, 40), work((1, 2), (10, 20), "a"), work((3, 4), (15, 25), "b", stream=8))
    (mark,) = icicle("key", "title", [Side("", 0, found)], (), ALL).marks
    assert {mark.labels[node.label]: node.time_ns[0] for node in mark.nodes if node.category >= 0} == {
        "a": 7500,
        "b": 7500,
    }
    (line,) = timeline("key", Side("", 0, found), (), ALL).marks
    assert [lane.name for lane in line.lanes][:3] == ["gpu:0 idle", "gpu:0 stream 7", "gpu:0 stream 8"]
    spans = {
        (line.lanes[box.lane].name, box.begin_ns, box.span_ns, box.time_ns)
        for box in line.boxes
        if line.groups[box.group].family != "host"
    }
    assert spans == {
        ("gpu:0 stream 7", 10_000, 10_000, 7500),
        ("gpu:0 stream 8", 15_000, 10_000, 7500),
        ("gpu:0 idle", 0, 10_000, 10_000),
        ("gpu:0 idle", 25_000, 15_000, 15_000),
    }


def figures(page, kind):
    return [
        part
        for section in page.sections
        for part in section.parts
        if isinstance(part, Figure) and type(part.marks[0]).__name__ == kind
    ]


def test_a_page_shows_both_sides_of_a_case_and_a_step_of_each(page_of, place, profiled, tmp_path):
    folder = place([])
    records = [
        profiled(make_record(1.0, case={"framework": name}, design={"case_number": at}), folder, kernel)
        for at, (name, kernel) in enumerate((("one", "sgemm_128x64"), ("two", "sgemm_32x32")))
    ]
    made = page_of(place(records))
    (both,) = figures(made, "Icicle")
    (mark,) = both.marks
    assert mark.series == (0, 1)
    gone = [node for node in mark.nodes if node.label >= 0 and mark.labels[node.label] == "sgemm_128x64"]
    assert [(node.time_ns[0] > 0, node.time_ns[1]) for node in gone] == [(True, 0)]
    assert [figure.title for figure in figures(made, "Timeline")] == list(mark.sides)


@pytest.mark.parametrize("number", [1, 2])
def test_captions_do_not_name_keys_as_files_for_papers_keep_them(number):
    found = ingest(FIXTURES / SMALL[0])
    sides = [Side(f"{at}", at, found) for at in range(number)]
    for figure in (icicle("key", "title", sides, (), 40), timeline("key", sides[0], (), 40)):
        assert not re.search(r"\b(click|press|enter|escape|wheel|arrow|drag)", figure.caption, re.IGNORECASE)


def test_profiles_beyond_the_limit_are_named_with_a_command(page_of, place, profiled, monkeypatch):
    monkeypatch.setattr(limits, "MOST_PROFILES", 2)
    folder = place([])
    records = [
        profiled(make_record(1.0, case={"params": {"batch_size": size}}, design={"case_number": size}), folder)
        for size in (1, 2, 3)
    ]
    made = page_of(place(records))
    assert (len(figures(made, "Icicle")), len(figures(made, "Timeline"))) == (1, 2)
    (section,) = [section for section in made.sections if section.key == "step"]
    next_one = f"`benchmarker report {records[2].trial_id}.events.parquet` shows the next one, and so on."
    assert section.lead == (f"Only the first 2 of 3 profiled configurations are shown; {next_one}",)


def test_a_trace_without_steps_is_drawn_as_a_whole(tmp_path):
    found = trace(tmp_path, work((1, 2), (10, 20), "a"))
    assert typical_step(found) is None
    assert timeline("key", Side("", 0, found), (), ALL).caption.startswith("The whole profile, as it marks no steps")
    without = replace(found, events=found.events.assign(step=-1))
    assert typical_step(without) is None


def test_what_a_device_ran_of_another_step_is_shown_apart(tmp_path):
    """Work that step 0 launched ends 5 µs after the begin of step 1."""
    found = trace(
        tmp_path,
        step(0, 0, 40),
        work((1, 2), (10, 45), "late"),
        step(1, 40, 70),
        work((41, 42), (50, 60), "own"),
    )
    (line,) = timeline("key", Side("", 0, found), (), ALL).marks
    assert line.length_ns == 30_000
    boxes = {line.labels[box.label]: box for box in line.boxes if box.label >= 0}
    assert boxes["late"][2:5] == (0, 5000, 5000)
    assert line.groups[boxes["late"].group][:2] == ("work of other steps", "host")
    assert line.groups[boxes["own"].group].family == "work"
    assert boxes["late"].lane == boxes["own"].lane


@pytest.mark.slow
def test_ten_cases_with_a_profile_of_each_side_fit_into_a_megabyte(page_of, place):
    folder, found = place([]), [ingest(FIXTURES / name) for name in SMALL[:2]]
    records = []
    for number in range(20):
        case = {"framework": ("one", "two")[number % 2], "params": {"batch_size": 2 ** (number // 2)}}
        record = make_record(1.0, case=case, design={"case_number": number})
        of = found[number % 2]
        (folder / f"{record.trial_id}.events.parquet").write_bytes(encode(of))
        reasons = {name: reason for name, reason in record.reasons.items() if name != "trace"}
        profile = {"trace": of.trace, "scopes": of.scopes, "kernels": of.kernels(), "reasons": reasons}
        records.append(msgspec.structs.replace(record, **profile))
    made = page_of(place(records))
    assert (len(figures(made, "Icicle")), len(figures(made, "Timeline"))) == (10, 20)
    assert len(render(made)) < 1_000_000


def boxes_of(axes):
    return [(box.get_x(), box.get_y(), box.get_width(), box.get_height()) for box in axes.patches]


def test_drawings_for_papers_have_the_same_widths():
    drawing = pytest.importorskip("benchmarker.page.drawing").drawing
    found = [ingest(FIXTURES / name) for name in SMALL[:2]]
    whole = icicle("key", "title", [Side("", 0, found[0])], (), ALL)
    (axes,) = drawing(whole, 6.5, "black").axes
    x, y, width, height = boxes_of(axes)[0]
    assert (x, width, height) == (0, found[0].trace.busy_ns / 1e9, pytest.approx(0.9))
    backward, forward = [box for box in boxes_of(axes) if box[1] == pytest.approx(y + 1)]
    assert backward[2] + forward[2] == pytest.approx(width)
    assert "lm_head" in [text.get_text().strip() for text in axes.texts]

    both = icicle(
        "key", "title", [Side(name, at, of) for at, (name, of) in enumerate(zip("ab", found, strict=True))], (), 50
    )
    canvas = drawing(both, 6.5, "black")
    assert [text.get_text() for text in canvas.legends[0].texts] == ["longer in a", "longer in b"]

    line = timeline("key", Side("", 0, found[0]), (), 40)
    canvas = drawing(line, 6.5, "black")
    (mark,) = line.marks
    assert len(boxes_of(canvas.axes[0])) == len(mark.boxes)
    assert sum(width for _, _, width, _ in boxes_of(canvas.axes[0])) == pytest.approx(
        sum(box.span_ns for box in mark.boxes) / 1e9
    )
    texts = [text.get_text() for text in canvas.legends[0].texts]
    assert {"gemm", "idle: host", "copy"} <= set(texts)
