"""What is derived from the local phase, by hand: four turns of two devices."""

import msgspec
import pytest
from support.records import make_record

from benchmarker.records.record import Local
from benchmarker.records.step_times import averaged, local_times

LOCAL = Local(
    2,
    [[200, 210], [220, 200], [205, 260], [215, 215]],
    [[100, 120], [90, 140], [100, 130], [110, 130]],
    [0, 1, 1, 0],
    [80, 100, 104, 84],
)


def record(local=LOCAL, **case):
    return make_record(1.0, case={"devices": 2, "ranks": 2, **case}, local=local)


def test_factors_are_ratios_of_medians_over_turns():
    times = local_times(record())
    assert times.alone_s == pytest.approx((82 / 2e9, 102 / 2e9))
    assert times.mean_alone_s == pytest.approx(92 / 2e9)
    assert times.together_s == pytest.approx((100 / 2e9, 130 / 2e9))
    assert times.mean_s == pytest.approx(115 / 2e9)  # of 110, 115, 115, 120
    assert times.longest_s == pytest.approx(130 / 2e9)  # of 120, 140, 130, 130
    assert times.synchronised_s == pytest.approx(217.5 / 2e9)  # of 210, 220, 260, 215
    assert times.contention * times.imbalance * times.communication == pytest.approx(92 / 217.5)
    assert times.scores == pytest.approx((1, 100 / 130))
    assert times.slowest == 1


def test_trials_are_averaged_geometrically():
    twice = msgspec.structs.replace(LOCAL, steps_per_block=1)
    one, two = local_times(record()), local_times(record(twice))
    both = averaged([one, two])
    assert both.alone_s == pytest.approx([2**0.5 * each for each in one.alone_s])
    assert both.together_s == pytest.approx([2**0.5 * each for each in one.together_s])
    assert both.imbalance == pytest.approx(one.imbalance)


def test_a_record_without_a_local_phase_has_no_times():
    assert local_times(make_record(1.0)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"alone_ns": [80]},
        {"synchronised_ns": [[200]] * 4},
        {"together_ns": [[100, 120, 130]] * 4},
        {"alone_device": [0, 0, 0, 0]},
        {"alone_device": [0, 1, 2, 0]},
    ],
)
def test_turns_that_are_not_whole_are_refused(change):
    with pytest.raises(ValueError, match="each turn of `local` must have a block of every rank, of every device"):
        record(msgspec.structs.replace(LOCAL, **change))


def test_a_process_of_several_devices_has_one_duration_of_the_step():
    one = msgspec.structs.replace(LOCAL, synchronised_ns=[[200]] * 4)
    assert local_times(record(one, ranks=1)).synchronised_s == pytest.approx(100e-9)
