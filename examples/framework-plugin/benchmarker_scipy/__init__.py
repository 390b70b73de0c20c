"""SciPy as a framework of benchmarker."""
