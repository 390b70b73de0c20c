"""JSON for pipes."""

import pytest

from benchmarker.cli.display.output import print_json, print_json_list


@pytest.mark.parametrize("values", [[], [1], [{"a": [1, {"b": "x\ny\u202e\x1b"}], "c": {}}, {"a": None}]])
def test_a_list_printed_piece_by_piece_is_the_same(capsys, values):
    print_json(values)
    whole = capsys.readouterr().out
    print_json_list(iter(values))
    assert capsys.readouterr().out == whole
    assert "\u202e" not in whole
