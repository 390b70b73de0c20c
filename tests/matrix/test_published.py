"""Published parameter counts and FLOPs, of every problem that states them."""

import pytest

from benchmarker.hooks import registry

PROBLEMS = {plugin.name: registry.problem(plugin.name) for plugin in registry.registered("problem").values()}
PUBLISHED = [(name, each) for name, problem in PROBLEMS.items() for each in problem.published]


@pytest.mark.parametrize(
    ("name", "published"), PUBLISHED, ids=[f"{name} {dict(each.options)}" for name, each in PUBLISHED]
)
def test_parameters_are_exactly_and_flops_nearly_those_published(name, published):
    problem = PROBLEMS[name]
    params = problem(**published.options)
    assert published.source
    assert published.parameters or published.flops
    if published.parameters is not None:
        assert params.parameter_count() == published.parameters
    if published.flops is not None:
        assert params.cost("inference", "fp32").flops == pytest.approx(published.flops, rel=0.01)
