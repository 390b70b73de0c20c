"""Plan files: read, or refused with the file and the place."""

import re
from pathlib import Path

import pytest

from benchmarker import UserError
from benchmarker.planning import factors, plan_file

PAGE = Path(__file__).parents[3] / "docs/plans.md"


def read(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return plan_file.read(path)


def test_the_file_on_the_page_gives_the_cases_that_the_page_says(tmp_path):
    page = PAGE.read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    description = read(tmp_path, text)
    tables = factors.expand(description)
    assert len(tables) == int(re.search(r"= (\d+)\. A factor", page).group(1))
    assert (description.trials, description.design, description.order_seed) == (5, "rounds", None)
    assert tables[0] == {
        "problem": "gemm",
        "framework": "torch",
        "precision": "fp32",
        "m": 256,
        "n": 1024,
        "k": 512,
        "preheat": True,
        "seconds": 10,
    }
    assert tables[-1]["seed"] == 1


def test_a_plan_has_defaults(tmp_path):
    assert read(tmp_path, 'problem = "gemm"\nbatch-size = 2') == factors.Description(
        base={"problem": "gemm", "batch_size": 2}, axes={}, zips=[], cases=[], trials=10, name="plan"
    )


def test_a_plan_has_a_name_and_a_version_and_so_have_its_cases(tmp_path):
    text = 'name = "gemms"\nversion = "2"\n[[case]]\nname = "small"\nm = 1\n[[case]]\nm = 2'
    description = read(tmp_path, text)
    assert (description.name, description.version) == ("gemms", "2")
    assert description.cases == [{factors.CASE_NAME: "small", "m": 1}, {"m": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m = ", "not TOML: Invalid value (at end of document)"),
        ("m = 1\nn = = 2", "not TOML: Invalid value (at line 2, column 5)"),
        ("m = 1\nm = 2\n", "not TOML: Cannot overwrite a value (at line 2"),
        ("m = " + "[" * 100_000, "not TOML: "),
        ("m = " + "1" * 10_000, "not TOML: "),
        ("m = [1, 2]", "plan.toml: m: not a number, text, true or false"),
        ("m = 1979-05-27", "plan.toml: m=1979-05-27: not a number, text, true or false"),
        ("[axis]\nm = [1]", "plan.toml: axis: not a number, text, true or false"),
        ("axes = 3", "plan.toml: axes=3: not a table"),
        ("[axes]\nm = 3", "plan.toml: axes.m=3: not a list"),
        ("[zip]\nm = [1]", "plan.toml: zip: not a list"),
        ("[[zip]]\nm = 1", "plan.toml: zip.m=1: not a list"),
        ("[[case]]\nm = [1]", "plan.toml: case.m: not a number"),
        ("trials = 0", "plan.toml: trials=0: must be at least 1"),
        ("trials = '3'", 'plan.toml: trials="3": not a whole number'),
        ("design = ['duet']", "plan.toml: design: not text"),
        ("design = 'trio'", 'plan.toml: design="trio": not one of rounds, duet'),
        ("name = 1", "plan.toml: name=1: not text"),
        ("version = 1", "plan.toml: version=1: not text"),
        ("name = ''", 'plan.toml: name="": must not be empty'),
        ("[[case]]\nname = 1", "plan.toml: case.name=1: not text"),
        ("order_seed = -1", "plan.toml: order_seed=-1: must be at least 0"),
        ("seconds = 3", "plan.toml: seconds is at the top level; move it to [measuring]"),
        ("[measuring]\nsecond = 3", "plan.toml: [measuring] has no second; there are: preheat, "),
        ("batch_size = 1\nbatch-size = 2", "plan.toml: batch-size is given twice, spelt differently"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none.toml: No such file"):
        plan_file.read(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        plan_file.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"problem = '\xe9'")
    with pytest.raises(UserError, match=r"latin.toml: not UTF-8 text: .* at byte 11"):
        plan_file.read(tmp_path / "latin.toml")
