"""Files of loads: what is stored is read back, and what no client measured is refused."""

import json
import re

import pytest
from support.serving import load, outcome, step

from benchmarker.api.errors import UserError
from benchmarker.records import load as loads
from benchmarker.records import store
from benchmarker.records.load import Lengths

LOAD = load([step([outcome(0.25, 0.1, 0.2), outcome(0.5, 0.1, 0.3)])])


def test_what_is_stored_is_read_back(tmp_path):
    path = loads.write(tmp_path / "results", LOAD)
    assert path == tmp_path / "results" / LOAD.run_id / "load.json"
    assert loads.read(path) == loads.read(path.parent) == LOAD


def test_a_load_is_no_record(tmp_path):
    path = loads.write(tmp_path, LOAD)
    records, (fault,) = store.read([path])
    assert (records, fault.reason) == ([], "not a record; name its folder")
    assert store.read([tmp_path])[1][0].reason == "contains no record"


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("steps", 0, "outcomes", 0, "sent_s"), 0.2, "a request was sent before its time"),
        (("steps", 0, "outcomes", 0, "chunks_s"), [0.3, 0.2], "or answered before it was sent"),
        (("steps", 0, "outcomes", 0, "chunks_s"), [], "neither a token nor a failure"),
        (("steps", 0, "outcomes"), [], "Expected `array` of length >= 1"),
        (("steps", 0, "planned"), 1, "more outcomes than planned"),
        (("steps", 0, "rate_per_s"), -1.0, "Expected `float` > 0"),
        (("schema_version",), 2, "Invalid enum value 2"),
        (("extra",), 2, "unknown field `extra`"),
        (("prompt_len",), {"low": 3, "high": 2}, "3 is above 2"),
    ],
)
def test_what_no_client_measured_is_refused(tmp_path, where, value, words):
    path = loads.write(tmp_path, LOAD)
    content = json.loads(path.read_text())
    part = content
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=re.escape(words)):
        loads.read(path)


def test_a_file_that_is_not_there_or_cannot_be_written_is_told(tmp_path):
    with pytest.raises(UserError, match=r"No such file or directory; name a load\.json"):
        loads.read(tmp_path / "load.json")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="name another folder with --results"):
        loads.write(tmp_path / "file", LOAD)


def test_lengths_in_words():
    assert (str(Lengths(3, 3)), str(Lengths(3, 5))) == ("3", "3..5")
