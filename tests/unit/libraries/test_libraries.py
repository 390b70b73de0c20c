"""Problems that are libraries: what their names, options and records say, without the library."""

import importlib.util
import json
from importlib.util import find_spec

import pytest

from benchmarker import UserError
from benchmarker.hooks import parameters, registry

LIBRARIES = [plugin.name for plugin in registry.registered("library").values()]


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_a_problem_of_its_frameworks(name):
    kind = registry.problem(name)
    assert registry.implementing(name) == (["jax", "tensorflow", "torch"] if name == "keras" else ["torch"])
    assert (kind.library, kind.distributions, kind.source.path) == (name, (name,), name)
    made = kind(**parameters.resolve(kind, {"batch_size": 3}, "cpu"))
    assert made.title("training").startswith(f"{made.model} training, B=3")
    with pytest.raises(UserError, match="is not known before it runs"):
        made.cost("inference", "fp32")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_model_of_a_hub_is_refused_with_what_to_do(name):
    kind = registry.problem(name)
    with pytest.raises(UserError, match="nothing is downloaded; give the name of a model"):
        parameters.convert(kind, {"model": "someone/something"}).refuse("inference")


def test_libraries_are_listed(cli):
    done = cli("list", "libraries", "--json")
    assert [each["name"] for each in json.loads(done.stdout)] == LIBRARIES


def test_models_are_listed_only_of_a_library(cli):
    done = cli("list", "models", "--problem=gemm")
    assert (done.returncode, done.stderr) == (
        2,
        f"benchmarker: error: list models needs a library: --problem={' or --problem='.join(LIBRARIES)}\n",
    )
    assert "leave it out" in cli("list", "problems", "--problem=timm").stderr


@pytest.mark.parametrize(
    ("library", "model"),
    [
        ("transformers", "Qwen2ForCausalLM"),
        pytest.param("timm", "test_vit", marks=pytest.mark.slow),
        pytest.param("keras", "NASNetMobile", marks=pytest.mark.slow),
    ],
)
def test_models_of_a_library_are_listed(cli, library, model):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    assert model in json.loads(cli("list", "models", f"--problem={library}", "--json").stdout)


def test_a_library_that_is_not_installed_is_listed_with_what_installs_it(monkeypatch):
    plugin = registry.registered("library")["library.timm"]
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "timm" else known(name))
    assert "needs the module 'timm'; pip install" in registry.trouble(plugin)


def test_a_library_is_available_if_one_of_its_frameworks_is(monkeypatch):
    plugin = registry.registered("library")["library.keras"]
    known = importlib.util.find_spec
    missing = ["torch"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else known(name))
    assert registry.trouble(plugin) is None or known("keras") is None or known("jax") is None
    missing.append("keras")
    assert "needs the module 'keras'; pip install" in registry.trouble(plugin)


def test_a_config_is_that_of_its_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = registry.problem("transformers")
    (tmp_path / "config.json").write_text("{}")
    made = parameters.convert(kind, parameters.resolve(kind, {"config": "config.json"}, "cpu"))
    assert made.config == "config.json@44136fa355b3"
    assert made.read_config() == {}
    (tmp_path / "config.json").write_text('{"n_layer": 1}')
    with pytest.raises(UserError, match=r"config\.json changed after the run was planned"):
        made.read_config()
    with pytest.raises(UserError, match=r"--inputs=none\.py: No such file"):
        parameters.convert(kind, {"inputs": "none.py"})
    with pytest.raises(UserError, match=r"--config=none\.json: No such file"):
        parameters.resolve(kind, {"config": "none.json"}, "cpu")
