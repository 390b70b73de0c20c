"""Perf tests in the test suites of other projects."""
