"""Perfetto: SQL queries, and traces for its viewer."""
