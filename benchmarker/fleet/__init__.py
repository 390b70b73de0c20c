"""Fleets: the same cases on many nodes at once, and which node or device is an outlier."""
