"""Profiler traces: files of any framework, read into one event table, attributed, summarised and checked."""
