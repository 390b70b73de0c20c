"""What is known of the machine and of the source that runs on it."""

import os
import subprocess

import pytest

from benchmarker.machine import description
from benchmarker.machine.description import caches, commit, describe, last_cache_bytes
from benchmarker.records.machine import Cache


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


@pytest.mark.parametrize(
    ("maker", "product", "model"),
    [
        ("Dell Inc.\n", "PowerEdge  R750\n", "Dell Inc. PowerEdge R750"),
        ("HP", "HP Z8 G4 Workstation", "HP Z8 G4 Workstation"),
        ("To Be Filled By O.E.M.", "X570 Taichi", "X570 Taichi"),
        ("ASUS", "System Product Name", None),
        ("ASUS", "Default string", None),
        ("ASUS", " \n", None),
        ("ASUS", None, None),
        (None, "PowerEdge", "PowerEdge"),
        (None, None, None),
    ],
)
def test_the_model_is_what_the_maker_wrote_into_the_firmware(tmp_path, monkeypatch, maker, product, model):
    monkeypatch.setattr(description, "_DMI", tmp_path)
    for name, text in (("sys_vendor", maker), ("product_name", product)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert describe().model == model


def test_a_name_that_is_no_text_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(description, "_DMI", tmp_path)
    (tmp_path / "product_name").write_bytes(b"R\xff750")
    assert describe().model == "R\ufffd750"


def test_caches_of_the_last_level_are_added_up_each_once(tmp_path):
    caches = {
        (0, 0): ("1", "32K", "0"),
        (0, 3): ("3", "1024K", "0-1"),
        (1, 3): ("3", "1024K", "0-1"),
        (2, 3): ("3", "2048K", "2"),
    }
    for (cpu, index), (level, size, shared) in caches.items():
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{value}\n")
    assert last_cache_bytes(tmp_path) == 3 * 2**20
    (tmp_path / "cpu2/cache/index3/size").write_text("many")
    assert last_cache_bytes(tmp_path) == 2**20
    assert last_cache_bytes(tmp_path / "none") is None


def test_the_caches_of_a_core_are_those_of_data(tmp_path):
    for index, (level, size, kind) in enumerate(
        [("3", "1024K", "Unified"), ("1", "32K", "Instruction"), ("1", "48K", "Data"), ("2", "?", "Unified")]
    ):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("size", size), ("type", kind)):
            (folder / name).write_text(f"{text}\n")
    assert caches(tmp_path) == [Cache(1, 48 * 2**10), Cache(3, 2**20)]
    assert caches(tmp_path / "none") == []
