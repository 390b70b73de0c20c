"""Profiler files, read into rows: XPlane and Chrome's JSON format."""
