"""`new`: a plan file to start from."""

import tomllib

from benchmarker.hooks import registry
from benchmarker.planning import plan_file


def test_the_plan_is_one_that_runs_here(command, tmp_path):
    done = command("new", "plan.toml")
    assert (done.returncode, done.stdout) == (
        0,
        "wrote plan.toml: `benchmarker plan show plan.toml` says what it would run\n",
    )
    plan_file.read(tmp_path / "plan.toml")
    frameworks = tomllib.loads((tmp_path / "plan.toml").read_text())["axes"]["framework"]
    assert frameworks
    assert not any(registry.trouble(registry.registered("framework")[f"framework.{name}"]) for name in frameworks)


def test_nothing_is_replaced(command, tmp_path):
    (tmp_path / "plan.toml").write_text("kept")
    done = command("new", "plan.toml")
    assert (done.returncode, done.stderr) == (2, "benchmarker: error: plan.toml exists already; name another file\n")
    assert (tmp_path / "plan.toml").read_text() == "kept"


def test_other_places_are_refused_in_one_line(command):
    assert "plan.toml: a plan names its frameworks itself" in command("new", "plan.toml", "--framework=jax").stderr
    assert "no/plan.toml cannot be written: No such file or directory" in command("new", "no/plan.toml").stderr
