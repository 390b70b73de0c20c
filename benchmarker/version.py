"""The name of this distribution on registries and its version, in a module that imports nothing else."""

__version__ = "0.1.0"
DISTRIBUTION = "framework-benchmarker"
