"""Options that choose among the work of a profile."""

import json

import pytest

PLACE = {"ph": "X", "pid": 1, "tid": 1}


def launched(number, kernel, op="aten::mm", stream=7, device=0, step=None):
    at = 100 * number
    ids = {"correlation": number, "device": device, "stream": stream}
    return [
        *(
            [{**PLACE, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 99}]
            * (step is not None)
        ),
        {**PLACE, "cat": "cpu_op", "name": op, "ts": at + 1, "dur": 20},
        {**PLACE, "cat": "cuda_runtime", "name": "launch", "ts": at + 2, "dur": 1, "args": {"correlation": number}},
        {
            "ph": "X",
            "pid": device,
            "tid": stream,
            "cat": "kernel",
            "name": kernel,
            "ts": at + 30,
            "dur": number,
            "args": ids,
        },
    ]


EVENTS = [
    *launched(1, "sgemm", step=0),
    *launched(2, "Memcpy DtoD", "aten::copy_", stream=8, step=1),
    *launched(3, "sgemm_bwd", "MmBackward0", device=1, step=2),
]
CHOICES = {
    "--name=GEMM": [1, 3],
    "--name=^sgemm$": [1],
    "--category=memory": [2],
    "--device=gpu:1": [3],
    "--stream=8": [2],
    "--stream=stream 7": [1, 3],
    "--step=1": [2],
    "--phase=backward": [3],
    "--phase=forward": [1, 2],
    "--phase=unknown": [],
    "--scope=(outside any)": [1, 2, 3],
    "--scope=layer": [],
}


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    return "t.json"


@pytest.mark.parametrize("choice", CHOICES)
def test_only_the_chosen_work_is_shown(command, trace, choice):
    rows = json.loads(command("profile", "kernels", trace, choice, "--json").stdout)
    assert sorted(row["busy_ns"] for row in rows) == [1000 * each for each in CHOICES[choice]]
    assert sum(row["share"] for row in rows) == pytest.approx(sum(CHOICES[choice]) / 6)  # of the whole profile
    shown = command("profile", "kernels", trace, choice)
    assert (shown.returncode, shown.stderr) == (0, "")
    if not CHOICES[choice]:
        assert "nothing in the profile matches" in shown.stdout
    scopes = json.loads(command("profile", "scopes", trace, choice, "--json").stdout)
    assert sum(row["root_ns"] for row in scopes) == 1000 * sum(CHOICES[choice])


def test_ops_are_chosen_by_their_own_names_and_by_what_they_launched(command, trace):
    def names(*options):
        return [row["op"] for row in json.loads(command("profile", "ops", trace, *options, "--json").stdout)]

    assert names("--name=copy") == ["aten::copy_"]
    assert names("--device=gpu:0") == ["aten::copy_", "aten::mm"]
    assert names("--category=embedding") == []


def test_filters_apply_to_both_of_two_results(command, trace):
    rows = json.loads(command("profile", "kernels", trace, trace, "--category=memory", "--json").stdout)
    assert [(row["name"], row["change"]) for row in rows] == [("Memcpy DtoD", "same")]


@pytest.mark.parametrize(
    ("option", "text"), [("--name=(", "not a regular expression"), ("--category=x", "gemm, convolution")]
)
def test_a_filter_that_cannot_be_is_refused_in_one_line(command, trace, option, text):
    done = command("profile", "kernels", trace, option)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert text in done.stderr
