"""SciPy for benchmarker."""
