"""Profiler files, read into rows: XPlane, and the formats that are JSON."""
