import subprocess
import sys

import pytest

from benchmarker import UserError
from benchmarker.hooks import registry
from benchmarker.hooks.registry import installing


def test_built_in_plugins_enter_by_the_entry_points():
    addresses = registry.registered()
    assert {"framework.jax", "framework.torch", "framework.numpy", "problem.gemm", "workload.gemm.jax"} <= set(
        addresses
    )
    assert addresses["problem.gemm"].distribution == "framework-benchmarker"


def test_an_unknown_name_gives_the_nearest_ones():
    with pytest.raises(UserError, match="no problem is named 'gem'; did you mean gemm"):
        registry.find("problem.gem")


def test_two_plugins_of_one_name_are_refused(distribution):
    distribution("first", {"problem.twin": "first"}, {"__init__.py": ""})
    distribution("second", {"problem.twin": "second"}, {"__init__.py": ""})
    with pytest.raises(UserError, match=r"two .* register problem.twin: (first and second|second and first)"):
        registry.registered()


def test_a_module_named_for_a_framework_implements_the_problem_of_its_package(distribution):
    files = {"__init__.py": "", "jax.py": "", "torch.py": "raise AssertionError\n", "work.py": ""}
    distribution("rowing", {"problem.row": "rowing"}, files)
    distribution("rowing_in_scull", {"framework.scull": "rowing_in_scull", "workload.row.scull": "rowing_in_scull"}, {})
    assert registry.implementing("row") == ["jax", "scull", "torch"]
    plugin = registry.find("workload.row.jax")
    assert (plugin.module, plugin.distribution, plugin.version) == ("rowing.jax", "rowing", "1.0")
    with pytest.raises(UserError, match=r"workload.row.jax does not implement the hook describe_workload"):
        registry.load(["workload.row.jax"])
    with pytest.raises(UserError, match=r"workload.row.torch cannot be imported: AssertionError"):
        registry.load(["workload.row.torch"])
    with pytest.raises(UserError, match=r"no workload is named 'row.work'"):
        registry.find("workload.row.work")


def test_another_distribution_cannot_replace_an_implementation(distribution):
    distribution("own", {"workload.gemm.jax": "own"}, {"__init__.py": ""})
    with pytest.raises(UserError, match=r"two distributions register workload.gemm.jax: own and framework-"):
        registry.registered()


@pytest.mark.parametrize("address", ["gadget.x", "framework", "framework.", "workload.gemm"])
def test_an_address_of_no_kind_is_refused(distribution, address):
    distribution("odd", {address: "odd"}, {"__init__.py": ""})
    with pytest.raises(UserError, match=rf"odd registers '{address}', which is not a valid address"):
        registry.registered()


def test_an_entry_point_names_a_module_and_no_object(distribution):
    distribution("odd", {"metric.odd": "odd:thing"}, {"__init__.py": ""})
    with pytest.raises(UserError, match="name only the module"):
        registry.registered()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "metric.odd does not implement the hook derive_metrics"),
        (
            "from benchmarker import hookimpl\n@hookimpl\ndef derive_metric(record): return {}\n",
            "unknown hook 'derive_metric'",
        ),
        (
            "from benchmarker import hookimpl\n@hookimpl\ndef derive_metrics(recrd): return {}\n",
            r"metric.odd: .*recrd",
        ),
        ("import numpy.nothing\n", "needs the module 'numpy.nothing', which the installed numpy does not have"),
        ("from math import nothing\n", "metric.odd cannot be imported: cannot import name 'nothing'"),
        ("{}['lib.so']\n", "metric.odd cannot be imported: KeyError: 'lib.so'$"),
        ("raise OSError('no\\n  lib')\n", "metric.odd cannot be imported: OSError: no lib$"),
    ],
)
def test_a_faulty_plugin_is_one_line(distribution, source, message):
    name = f"odd{abs(hash(source))}"  # a module of its own: Python keeps what it has imported
    distribution(name, {"metric.odd": name}, {"__init__.py": source})
    with pytest.raises(UserError, match=message):
        registry.load(["metric.odd"])


@pytest.mark.parametrize(
    "source",
    ["import nosuchlib\n", "from contextlib import nullcontext\nwith nullcontext():\n    import nosuchlib\n"],
)
def test_a_missing_library_is_found_without_importing(distribution, source):
    name = f"lacking{abs(hash(source))}"  # a module of its own: Python keeps what it has imported
    distribution(name, {"framework.lacking": f"{name}.it"}, {"__init__.py": "", "it.py": source})
    plugin = registry.find("framework.lacking")
    assert registry.trouble(plugin) == "framework.lacking needs the module 'nosuchlib'; install the missing library"
    with pytest.raises(UserError, match="needs the module 'nosuchlib'"):
        registry.load(["framework.lacking"])
    assert f"{name}.it" not in sys.modules


def test_the_extra_that_brings_a_library_is_named(monkeypatch):
    monkeypatch.setattr(registry.importlib.util, "find_spec", _without("torch", registry.importlib.util.find_spec))
    plugin = registry.find("framework.torch")
    remedy = installing("torch", plugin.distribution)
    assert registry.trouble(plugin) == f"framework.torch needs the module 'torch'; {remedy}"


def _without(name, find_spec):
    return lambda module, *rest: None if module == name else find_spec(module, *rest)


def test_a_plugin_that_does_not_parse_is_told(distribution):
    distribution("broken", {"metric.broken": "broken"}, {"__init__.py": "def f(:\n"})
    assert "cannot be read" in registry.trouble(registry.find("metric.broken"))


def test_a_plugin_without_its_module_is_told(distribution):
    distribution("gone", {"metric.gone": "gone.away"}, {"__init__.py": ""})
    assert "reinstall gone" in registry.trouble(registry.find("metric.gone"))


@pytest.mark.parametrize("command", [["--help"], ["list"], ["run", "--problem=gemm", "--help"], ["env"]])
def test_no_framework_is_imported_for(command):
    code = (
        "import sys\nfrom benchmarker.cli import main\n"
        f"try:\n main({command!r})\nexcept SystemExit as end:\n assert not end.code, end.code\n"
        "found = {'jax', 'torch', 'flax', 'optax'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
