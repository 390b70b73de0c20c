"""Profiler traces: read from the files of any framework into one table of events, attributed, counted and checked."""
