"""What is printed of a command's result, by format."""

import pytest

from benchmarker.cli.display.output import Output, View, print_output
from benchmarker.tables.table import Column, Table

FIRST = Table((Column("case"), Column("n", numeric=True)), [["a", 1]])
SECOND = Table((Column("case"), Column("m", numeric=True)), [["b", 2]])


def test_csv_is_one_table_and_says_how_many_there_are(capsys):
    print_output(Output((FIRST, "between", SECOND)), View("csv"))
    printed = capsys.readouterr()
    assert printed.out == "case,n\na,1\n"
    assert printed.err.splitlines() == [
        "between",
        "CSV is the first of 2 tables; --json and other formats have all of them",
    ]


@pytest.mark.parametrize(
    ("parts", "csv"), [((FIRST,), None), ((FIRST, SECOND), SECOND), ((FIRST, SECOND), lambda: SECOND)]
)
def test_csv_of_the_only_table_or_of_that_which_is_meant_says_nothing(capsys, parts, csv):
    print_output(Output(parts, csv=csv), View("csv"))
    printed = capsys.readouterr()
    assert printed.out == ("case,m\nb,2\n" if csv else "case,n\na,1\n")
    assert printed.err == ""
