"""The command that installs an extra suits the way in which the distribution was installed."""

import json

import pytest

from benchmarker.api.errors import UserError
from benchmarker.hooks.registry import installing, needing


@pytest.mark.parametrize(
    ("direct", "command"),
    [
        (None, "pip install 'other[plot]'"),
        ({"url": "file:///a%20b/src", "dir_info": {"editable": True}}, "pip install -e '/a b/src[plot]'"),
        ({"url": "file:///src", "dir_info": {}}, "pip install '/src[plot]'"),
        (
            {"url": "file:///w/other-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'other[plot] @ file:///w/other-1-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/other", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'other[plot] @ git+https://example.org/other@abc'",
        ),
    ],
)
def test_the_command_suits_the_installation(distribution, tmp_path, direct, command):
    distribution("other", {}, {"__init__.py": ""})
    if direct:
        (tmp_path / "site/other-1.0.dist-info/direct_url.json").write_text(json.dumps(direct))
    assert installing("plot", "other") == command


def test_what_is_not_installed_is_installed_from_its_source():
    assert installing("plot", "no-such-thing") == "pip install '.[plot]' in the source of no-such-thing"


def test_a_missing_module_of_an_extra_is_told_with_its_remedy_and_a_missing_one_of_the_project_is_a_bug():
    with pytest.raises(UserError) as told, needing("plot", "a plot"):
        import no_such_thing  # noqa: F401
    assert str(told.value) == f"a plot needs the module 'no_such_thing'; {installing('plot')}"
    with pytest.raises(ModuleNotFoundError), needing("plot", "a plot"):
        import benchmarker.no_such_thing  # noqa: F401
