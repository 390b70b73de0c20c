import math

import pytest

from benchmarker.running.check import compare_losses

FALLING = [4.0 - 0.05 * step for step in range(40)]  # the last eight are 2.4 to 2.05, about 0.56 of the first


def test_losses_that_fall_and_agree():
    first, second = compare_losses({"a": FALLING, "b": [loss * 1.0005 for loss in FALLING]}, "fp32")
    assert first.ok
    assert first.apart == 0
    assert second.ok
    assert second.apart == pytest.approx(0.0005)


def test_a_loss_that_does_not_fall_is_wrong():
    flat = [4.0 - 0.02 * step for step in range(40)]  # the last eight average 0.82 of the first
    (curve,) = compare_losses({"a": flat}, "fp32")
    assert not curve.falls


def test_losses_that_differ_at_one_step_are_wrong():
    other = [*FALLING[:20], FALLING[20] * 1.002, *FALLING[21:]]
    assert not compare_losses({"a": FALLING, "b": other}, "fp32")[1].ok
    assert compare_losses({"a": FALLING, "b": other}, "bf16")[1].ok  # it is held to bf16's own bound


def test_a_loss_that_is_not_finite_neither_falls_nor_agrees():
    broken = [*FALLING[:-1], math.inf]
    for losses in ({"a": FALLING, "b": broken}, {"b": broken, "a": FALLING}):
        curves = {curve.framework: curve for curve in compare_losses(losses, "bf16")}
        assert not curves["b"].ok
        assert not curves["b"].falls
