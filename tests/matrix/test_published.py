"""Published parameter counts and FLOPs, of every problem that states them."""

import pytest

from benchmarker.hooks import registry

PROBLEMS = {
    name: registry.load([address]).hook.make_problem()
    for address in registry.registered("problem")
    for name in [address.partition(".")[2]]
}
PUBLISHED = [(name, each) for name, problem in PROBLEMS.items() for each in problem.published]


@pytest.mark.parametrize(
    ("name", "published"), PUBLISHED, ids=[f"{name} {dict(each.options)}" for name, each in PUBLISHED]
)
def test_parameters_are_exactly_and_flops_nearly_those_published(name, published):
    problem = PROBLEMS[name]
    params = problem.params(**published.options)
    assert published.source
    assert published.parameters or published.flops
    if published.parameters is not None:
        assert problem.parameter_count(params) == published.parameters
    if published.flops is not None:
        assert problem.cost(params, "inference", "fp32").flops == pytest.approx(published.flops, rel=0.01)
