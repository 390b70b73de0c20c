"""The version of this package, for those who must not import the whole of it."""

__version__ = "0.1.0"
