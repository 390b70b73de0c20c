"""The profiled pass holds a profile against what its problem says of the case."""

from unittest.mock import Mock

import msgspec
import pytest
from support import profiles
from support.models import problem_of
from support.records import make_record

from benchmarker import MODES
from benchmarker.records.plan import make_plan
from benchmarker.records.store import new_run
from benchmarker.running import profile_pass
from benchmarker.running.context import Context
from benchmarker.worker.protocol import folder_of

STEPS = 2


@pytest.mark.parametrize("mode", MODES)
def test_the_scopes_of_a_profile_are_those_of_its_mode(tmp_path, monkeypatch, mode):
    def take(_, record, into):
        folder_of(into, 0).mkdir(exist_ok=True)
        (folder_of(into, 0) / "t.json").write_bytes(profiles.torch_json(profiles.torch_events(STEPS)))
        return {}

    monkeypatch.setattr(profile_pass, "_take", take)
    record = make_record()
    case = msgspec.structs.replace(record.case, problem="gpt2", params={"n_layer": 3}, mode=mode)
    with new_run(tmp_path, make_plan([case], 1)) as folder:
        folder.work.mkdir(exist_ok=True)
        found = profile_pass.add_profile(Context(folder, Mock()), msgspec.structs.replace(record, case=case))
    assert found.trace is not None, found.reasons["trace"]
    expected = {scope.scope: scope.expected for scope in found.scopes if scope.expected}
    assert expected == {name: STEPS * count for name, count in problem_of("gpt2")(n_layer=3).scopes(mode).items()}
