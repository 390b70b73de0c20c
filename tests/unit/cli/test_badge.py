"""The badge of `show`: one figure with the digits that its trials leave, and nothing that a name could break."""

import xml.etree.ElementTree as ET

import pytest
from support.records import make_record

from benchmarker.api.errors import UserError
from benchmarker.display.badge import badge
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store
from benchmarker.records.plan import make_plan

STEP_TIME = "step_time_median_s"


def drawn(*steps_s: float, **case: object) -> ET.Element:
    records = [make_record(step_s, trial=number, case=case) for number, step_s in enumerate(steps_s)]
    return ET.fromstring(badge(Cases.of(records), load_metrics(), STEP_TIME))


@pytest.mark.parametrize(
    ("steps_s", "figure"),
    [
        ((0.0123456,), "12 ms"),
        ((0.0121, 0.0123, 0.0129), "12.3 ms"),  # the range is 0.8 ms, ± 0.4
        ((0.010, 0.012, 0.020), "12 ms"),
    ],
)
def test_a_figure_has_the_digits_that_its_trials_leave(steps_s, figure):
    assert drawn(*steps_s).get("aria-label") == f"nap: {figure}"


def test_names_are_escaped_and_the_title_says_when_and_where():
    tree = drawn(1.0, 1.5, problem="<b>&\"'\x1b")
    assert tree.get("aria-label") == "<b>&\"'\\x1b: 1.2 s"
    title = tree.find("{*}title").text
    record = make_record()
    assert f"{STEP_TIME}, median of 2 trials, {record.started_at[:10]}, {record.machine.cpu.model}" in title
    assert not {"href", "src"} & {name for each in tree.iter() for name in each.attrib}


def test_the_command_writes_one_case_and_refuses_several(command, tmp_path):
    records = [make_record(0.5, trial=n, case={"params": {"ms": n + 1.0}}) for n in (0, 1)]
    with pytest.raises(UserError, match="a badge shows one case, and there are 2; select one with --where"):
        badge(Cases.of(records), load_metrics(), STEP_TIME)
    with store.new_run(tmp_path / "results", make_plan([records[0].case], 1)) as folder:
        folder.save(records[0])
    done = command("show", "results", "--badge=speed.svg")
    assert (done.returncode, done.stderr) == (0, "badge: speed.svg\n")
    assert ET.parse(tmp_path / "speed.svg").getroot().get("aria-label") == "nap: 500 ms"
    assert command("show", "results", "--badge=x.svg", "--metric=a,b").returncode == 2
