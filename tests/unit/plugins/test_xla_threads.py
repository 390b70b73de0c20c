"""Threads are counted while others start and end."""

import threading
from pathlib import Path

from benchmarker_plugins.frameworks import xla_threads


def test_a_thread_that_ends_meanwhile_is_not_counted(monkeypatch):
    (own,) = [task for task in Path("/proc/self/task").iterdir() if task.name == str(threading.get_native_id())]
    monkeypatch.setattr(xla_threads, "NAME", (own / "comm").read_text().strip())
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("/proc/self/task/0"), own]))
    assert xla_threads.pool_threads() == 1
