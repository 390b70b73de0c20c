"""Benchmark machine-learning workloads across frameworks and devices.

The names in `__init__.pyi` are the public API: everything that a plugin, a problem or a notebook imports. Each is
imported on first use, so that a process imports only what it uses.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
