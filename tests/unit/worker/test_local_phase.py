"""The local phase, where there is none."""

from types import SimpleNamespace

import pytest

from benchmarker.api.case import Measuring
from benchmarker.worker.process_group import RankRunner
from benchmarker.worker.trial import MOST_LOCAL_DEVICES, local_phase


@pytest.mark.parametrize("devices", [MOST_LOCAL_DEVICES, MOST_LOCAL_DEVICES + 1])
def test_so_many_devices_are_not_each_alone_once(devices):
    """A number too many is refused before anything is made for it; one less is not."""
    asked = []

    def gather(method):
        asked.append(method)
        return ["no step"]

    group = SimpleNamespace(gather=gather, bench=SimpleNamespace(case=SimpleNamespace(devices=devices)))
    why = local_phase(group, 8, Measuring(), None)
    if devices > MOST_LOCAL_DEVICES:
        assert (why, asked) == (
            "257 devices are too many for each to be alone once; at most 256 have a local phase",
            [],
        )
    else:
        assert (why, asked) == ("no step", [RankRunner.open_local])
