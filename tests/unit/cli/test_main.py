"""The entry point: an interrupt while modules are imported, and modules in the current folder."""

import importlib.metadata
import signal
import subprocess
import sys

import pytest

from benchmarker.__main__ import main


class Interrupt:
    """Finds modules as long as the user does not press Ctrl-C, which is while `benchmarker.cli` is imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "benchmarker.cli":
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_while_modules_are_imported_ends_it_as_any_other(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "benchmarker.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 128 + signal.SIGINT
    assert capsys.readouterr().err == "benchmarker: interrupted\n"
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="benchmarker")
    assert command.value == "benchmarker.__main__:main"


def test_files_in_the_current_folder_that_are_named_as_libraries_are_not_imported(tmp_path):
    for name in ("numpy", "json", "torch", "signal", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this one')")
    words = (sys.executable, "-m", "benchmarker", "list", "metrics")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "throughput" in done.stdout
