"""The local phase, where there is none."""

from types import SimpleNamespace

import pytest

from benchmarker.api.case import Measuring
from benchmarker.worker.local import MOST_DEVICES, local_phase


@pytest.mark.parametrize("devices", [MOST_DEVICES, MOST_DEVICES + 1])
def test_so_many_devices_are_not_each_alone_once(devices):
    """A number too many is refused before anything is made for it; one less is not."""
    asked = []

    def all_(name):
        asked.append(name)
        return ["no step"]

    team = SimpleNamespace(all=all_, bench=SimpleNamespace(case=SimpleNamespace(devices=devices)))
    why = local_phase(team, 8, Measuring(), None)
    if devices > MOST_DEVICES:
        assert (why, asked) == (
            "257 devices are too many for each to be alone once; at most 256 have a local phase",
            [],
        )
    else:
        assert (why, asked) == ("no step", ["open_local"])
