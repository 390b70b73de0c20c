"""Scaling on the page: the figure of speed-ups, the table of ranks, and bandwidths over the size of an exchange."""

import msgspec
import pytest
from support.records import make_record

from benchmarker.records.record import CostPart, Local, Memory, Rank


def trials(step_s, devices, ranks=1, **case):
    """Six rounds of a case; each rank but the last takes 90% of the slowest's time."""
    of_ranks = [
        Rank(
            number,
            0,
            [number],
            [round(1e9 * step_s * (1.0 if number == ranks - 1 else 0.9))],
            Memory(2**30, 2**20 + number),
        )
        for number in range(ranks if ranks > 1 else 0)
    ]
    return [
        make_record(
            step_s,
            trial=trial,
            case={"devices": devices, "ranks": ranks, **case},
            design={"case_number": devices},
            cost=CostPart(1000, 0, 8, 4, None),
            ranks=of_ranks,
        )
        for trial in range(6)
    ]


def test_speed_ups_are_drawn_with_the_ideal(page_of, place, parts):
    made = page_of(place([*trials(1.0, 1), *trials(0.6, 2, 2), *trials(0.5, 4, 4)]))
    figure = parts(made)["speed-up"]
    series, ideal = figure.marks
    assert series.x == ideal.x == ideal.y == (1, 2, 4)
    assert series.y == pytest.approx((1, 1 / 0.6, 2))
    assert series.low[1:] == pytest.approx((1 / 0.6, 2))
    assert (figure.x.log, figure.y.log) == ("always", "always")
    names = [column.name for column in figure.data.columns]
    row = dict(zip(names, figure.data.rows[2], strict=True))
    assert (row["devices"], row["scaling"], row["trials"]) == (4, "strong", 6)
    assert row["efficiency"] == pytest.approx(0.5)
    assert row["samples_per_s_per_device"] == pytest.approx(2)
    (section,) = [section for section in made.sections if section.key == "scaling"]
    assert "Strong scaling to 4 devices: 2 [2, 2] times the speed of one, efficiency 50% [50, 50]" in section.lead[1]
    assert [(card.word, card.figure) for card in made.cards][-1] == ("strong scaling", "2×")
    assert section.lead[0] == "nap ms=1.0 fp32 in toy on cpu."
    assert any("ideal scaling is impossible" in point for point in section.points)


def test_each_device_has_a_row(page_of, place, parts):
    local = Local(1, [[10, 10]] * 2, [[4, 6]] * 2, [0, 1], [4, 6])
    records = [*trials(1.0, 1), *(msgspec.structs.replace(each, local=local) for each in trials(0.6, 2, 2))]
    rows = [row[-7:] for row in parts(page_of(place(records)))["Devices"].table.rows]
    assert rows[0] == pytest.approx((0, 0.54, 4e-9, 4e-9, 1, 2**20, 6))
    assert rows[1] == pytest.approx((1, 0.6, 6e-9, 6e-9, 4 / 6, 2**20 + 1, 6))


def test_devices_of_one_process_have_times_without_communication_alone(page_of, place, parts):
    local = Local(1, [[10]] * 2, [[4, 6]] * 2, [0, 1], [4, 6])
    records = [msgspec.structs.replace(each, local=local) for each in trials(0.6, 2)]
    rows = [row[-7:] for row in parts(page_of(place(records)))["Devices"].table.rows]
    assert rows == [(0, None, 4e-9, 4e-9, 1, None, 6), pytest.approx((1, None, 6e-9, 6e-9, 4 / 6, None, 6))]


def test_several_devices_without_one_are_named(page_of, place):
    (section,) = [each for each in page_of(place(trials(1.0, 2))).sections if each.key == "scaling"]
    assert section.lead == ()
    assert [part.title for part in section.parts] == ["Devices"]
    assert "no case of one device has the same work" in section.points[0]


def test_without_process_groups_there_is_no_section(page_of, place):
    assert all(section.key != "scaling" for section in page_of(place(trials(1.0, 1))).sections)


def test_bus_bandwidth_is_drawn_over_the_size(page_of, place, parts):
    records = [
        make_record(
            size / 1e9,
            case={"problem": "collective", "devices": 2, "params": {"op": "all_reduce", "bytes": size}},
            design={"case_number": number},
        )
        for number, size in enumerate((2**10, 2**15, 2**20))
    ]
    figure = next(part for key, part in parts(page_of(place(records))).items() if key.endswith("busbw_bytes_per_s"))
    (line,) = figure.marks
    assert line.x == (2**10, 2**15, 2**20)
    assert line.y == pytest.approx((1e9, 1e9, 1e9), rel=0.01)  # 2 (n - 1) / n = 1 of two devices
    assert figure.title == "bus bandwidth over bytes"
