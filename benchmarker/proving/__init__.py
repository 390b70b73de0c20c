"""Proves a suite of claims: each in a process of its own, within its limit, resumable."""
