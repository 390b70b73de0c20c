"""Perfetto: queries in SQL, and traces for its viewer."""
