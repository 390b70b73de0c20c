"""Perf tests in the test suites of other projects."""

MARK = "benchmarker"
"""The mark of pytest that sets how a perf test is measured."""
