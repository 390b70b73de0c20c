"""What a user's file has to measure, read without running it."""

import sys
import textwrap

import pytest

from benchmarker import UserError
from benchmarker.cli.commands.run import run_command
from benchmarker.cli.options import target
from benchmarker.hooks import parameters, registry
from benchmarker.library.judging import pairs_of
from benchmarker_problems.own import code


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "file.py"
        path.write_text(textwrap.dedent(content))
        return code.read("file.py", path)

    return read


def test_functions_and_classes_are_measured_and_helpers_imports_and_private_names_are_not(read):
    found = read(
        '''
        """Sorts.

        More."""
        from math import sqrt
        import torch
        def inputs(n=2**10, kind="a", flag=True, x=-1.5): ...
        def reference(x): ...
        def flops(n): ...
        def first(x): ...
        def _hidden(x): ...
        class Second(torch.nn.Module):
            def __init__(self, n, depth=3): ...
            def loss(self, x): ...
        '''
    )
    assert list(found.functions) == ["first", "Second"]
    assert set(found.helpers) == {"inputs", "reference", "flops"}
    assert found.options == {"n": 1024, "kind": "a", "flag": True, "x": -1.5, "depth": 3}
    assert (found.classes, found.trained, found.frameworks) == ({"Second"}, {"Second"}, ("torch",))
    assert found.summary == "Sorts."


def test_a_class_has_the_options_and_the_loss_of_its_base(read):
    found = read("class A(M):\n  def __init__(self, n=1): ...\n  def loss(self): ...\nclass B(A):\n  def f(self): ...")
    assert (found.trained, found.options) == ({"A", "B"}, {"n": 1})


def test_all_decides_what_is_public(read):
    assert list(read("__all__ = ['_b']\ndef a(): ...\ndef _b(): ...").functions) == ["_b"]


def test_a_lambda_is_a_function_and_a_helper(read):
    found = read("inputs = lambda n=8: n\nbytes = lambda n: 4 * n\nf = lambda x: x\n_g = lambda x: x\nSIZE = 3")
    assert (list(found.functions), set(found.helpers), found.options) == (["f"], {"inputs", "bytes"}, {"n": 8})


@pytest.mark.parametrize("defined", ["f = jax.jit(g)", "if x:\n  def f(x): ...", "from a import f", "import a as f"])
def test_all_may_name_what_syntax_does_not_show_to_be_a_function(read, defined):
    file = f"def inputs(): ...\ndef g(x): ...\n{defined}\n"
    assert list(read(file).functions) == ["g"]
    assert list(read(f"{file}__all__ = ['f', 'g']").functions) == ["f", "g"]


def test_a_function_in_a_function_may_yield_and_a_base_class_may_be_called(read):
    assert list(read("def f():\n  def g(): yield\n  return [*g()]\nclass B(f): ...").functions) == ["f", "B"]


@pytest.mark.parametrize(
    ("imports", "frameworks"),
    [
        ("import torch.nn", ("torch",)),
        ("import triton", ("torch",)),
        ("from jax import numpy", ("jax",)),
        ("from flax import nnx", ("jax",)),
        ("import numpy", ("numpy",)),
        ("", ("numpy",)),
        ("import jax\nimport torch", ("torch", "jax")),
        ("from . import torch", ("numpy",)),
    ],
)
def test_the_framework_is_the_one_that_is_imported(read, imports, frameworks):
    assert read(f"{imports}\ndef f(): ...").frameworks == frameworks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def f(:", r"file\.py:1: invalid syntax"),
        ("x = 1", "no public function or class"),
        ("def inputs(): ...", "no public function or class"),
        ("def f(x): ...", "no `inputs`, but f takes arguments"),
        ("def inputs(n): ...\ndef f(x): ...", r"inputs takes n, which has no default"),
        ("def inputs(n=None): ...\ndef f(x): ...", r"inputs takes n, which has no default"),
        ("def inputs(n=open('x')): ...\ndef f(x): ...", r"inputs takes n, which has no default"),
        ("def inputs(n=1): ...\ndef flops(m): ...\ndef f(x): ...", r"flops takes m, which has no default"),
        (
            "def inputs(n=1): ...\nclass C:\n  def __init__(self, n=2): ...\n  def __call__(self): ...",
            "n has two defaults",
        ),
        ("def inputs(n=9**9**9): ...\ndef f(x): ...", r"inputs takes n, which has no default"),
        ("def inputs(n=1 << 10**10): ...\ndef f(x): ...", r"inputs takes n, which has no default"),
        ("def f(): ...\n\0", r"^file\.py: source code string cannot contain null bytes"),
        ("\n__all__ = [x for x in y]\ndef f(): ...", r"^file\.py:2: __all__ is no list of texts; write the names out"),
        ("\n__all__ = ['f', 'g']\ndef f(): ...", r"^file\.py:2: __all__ names g, which the file does not define"),
        ("async def f(): ...\ndef g(): ...", r"^file\.py: f is `async def`; let a plain function run it"),
        ("def f():\n  for x in y:\n    yield x", r"^file\.py: f is a generator, .* return instead of yield"),
        ("def inputs(): yield\ndef f(x): ...", r"^file\.py: inputs is a generator"),
        ("class C: ...", r"^file\.py: C has no method `__call__`.* add it, or begin its name with _"),
    ],
)
def test_a_file_that_cannot_be_measured_is_refused_in_one_line(read, content, message):
    with pytest.raises(UserError, match=message) as refused:
        read(content)
    assert "\n" not in str(refused.value)


def test_a_file_is_a_problem_with_its_options_and_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("raise SystemExit\nimport torch\ndef inputs(n=8): ...\ndef f(x): ...\n")
    kind = registry.problem("own.py")
    assert [(field.option, field.default) for field in parameters.fields(kind)] == [("--function", "f"), ("--n", 8)]
    assert registry.implementing("own.py") == ["torch"]
    assert kind.source is not None
    assert kind.source.path == "own.py"


@pytest.mark.parametrize("name", ["function", "small", "source", "code"])
def test_a_parameter_that_cannot_be_an_option_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(f"def inputs({name}=8): ...\ndef f(x): ...\n")
    with pytest.raises(UserError, match=f"own.py has a parameter '{name}', .* rename the parameter"):
        registry.problem("own.py")


def test_a_parameter_that_is_an_option_of_the_command_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("json", "help", "blocks"):
        (tmp_path / f"{name}.py").write_text(f"def inputs({name}=8): ...\ndef f(x): ...\n")
        with pytest.raises(UserError, match=f"{name}.py has a parameter '{name}', which is a common option"):
            run_command.make_context("run", [f"{name}.py"], help_option_names=["-h", "--help"])


def test_files_are_compared_by_the_functions_that_they_have_in_common(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, functions in {"a": "fg", "b": "gh", "c": "fgh", "d:e": "x"}.items():
        (tmp_path / f"{name}.py").write_text("".join(f"def {each}(): ...\n" for each in functions))
    a, b, c, d = ((name, {"problem": f"{name}.py", "framework": "numpy"}) for name in ("a", "b", "c", "d:e"))

    def pairs(one, other):
        cases, not_compared = pairs_of(one, other)
        return [f"{case.problem}:{case.params['function']}" for case in cases], not_compared

    assert pairs(a, b) == (["a.py:g", "b.py:g"], ["a.py:f", "b.py:h"])
    assert pairs(c, a) == (["c.py:f", "a.py:f", "c.py:g", "a.py:g"], ["c.py:h"])
    assert pairs(("a", {**a[1], "function": "f"}), ("b", {**b[1], "function": "h"})) == (["a.py:f", "b.py:h"], [])
    with pytest.raises(
        UserError, match=r"^a\.py and d:e\.py have no function in common; name one of each, as in a\.py:f"
    ):
        pairs_of(a, d)
    assert target.expanded(["d:e.py", "--n=1"]) == ["--problem=d:e.py", "--framework=numpy", "--n=1"]


def test_a_module_of_a_package_is_a_problem(tmp_path, monkeypatch):
    package = tmp_path / "ownpackage"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit\n")
    (package / "layers.py").write_text("def f(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.implementing("ownpackage.layers") == ["numpy"]
    assert "ownpackage" not in sys.modules


def test_a_file_that_does_not_exist_is_named():
    with pytest.raises(UserError, match=r"absent/softmax\.py: no such file"):
        registry.problem("absent/softmax.py")
