"""The entry point: an interrupt while modules are imported, and modules in the current folder."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

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
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"benchmarker": "benchmarker.__main__:main"}


@pytest.mark.parametrize("module", ["benchmarker.cli", "benchmarker.cli.commands.list"])
def test_it_ends_with_a_status_also_if_what_was_interrupted_is_code_in_a_text(tmp_path, module):
    (tmp_path / "interrupted.py").write_text(f"""if True:
        import sys
        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "{module}":
                    exec("raise KeyboardInterrupt")
        sys.meta_path.insert(0, Interrupt())
        from benchmarker.__main__ import main
        main()
    """)
    words = (sys.executable, "-m", "interrupted", "list")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "benchmarker: interrupted")


def test_files_in_the_current_folder_that_are_named_as_libraries_are_not_imported(tmp_path):
    for name in ("numpy", "json", "torch", "signal", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this one')")
    words = (sys.executable, "-m", "benchmarker", "list", "metrics")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "throughput" in done.stdout
