"""The advice to measure in turns what one machine measured one after the other."""

import msgspec
from support.records import make_record

from benchmarker.comparing.matching import Match, Side
from benchmarker.procurement.sides import advice

RUN = "python -m benchmarker run --framework=numpy --problem=gemm"


def match(one, two, *, hosts=("here", "here")):
    sides = []
    for name, words, host in zip("AB", (one, two), hosts, strict=True):
        record = make_record(run=name)
        machine = msgspec.structs.replace(record.machine, host=host)
        sides.append(Side(name, (msgspec.structs.replace(record, command=f"{RUN} {words}", machine=machine),)))
    return Match({}, *sides)


def test_the_command_has_what_is_common_once_and_the_rest_by_side():
    found = advice([match("--m=8 --threads=1", "--m=8 --threads=2 --precision=fp64")])
    assert found == (
        "here measured both sides: in turns, what changes on it meets both alike: python -m benchmarker ab "
        "--framework=numpy --problem=gemm --m=8 --a=--threads=1 '--b=--threads=2 --precision=fp64'"
    )
    assert "here the first of 2 cases" in advice([match("--m=8", "--m=9")] * 2)


def test_there_is_none_for_several_machines_or_the_same_case():
    assert advice([match("--m=8", "--m=9", hosts=("here", "there"))]) is None
    assert advice([match("--m=8", "--m=8")]) is None
