"""The lines of a table and its sentences on a terminal."""

from benchmarker.display.result import lines
from benchmarker.tables import terminal
from benchmarker.tables.table import Table


def test_a_title_wraps_like_a_sentence(monkeypatch):
    monkeypatch.setattr(terminal, "width", lambda: 12)
    table = Table(Table.of(["a"], [["1"]]).columns, (("1",),), title="one two three four")
    assert lines(table)[:2] == ["one two", "three four"]
