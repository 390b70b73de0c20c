"""What is known of the machine and of the source that runs on it."""

import os
import subprocess

import pytest

from benchmarker.machine.description import commit


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_the_commit_of_a_checkout_of_another_owner_is_known(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=first"], check=True)
    mine = commit(tmp_path)
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 12345, 12345)
    assert mine
    assert commit(tmp_path) == mine
