"""Procurement: scores, costs, acceptance tests against a reference, and completeness checks."""
