"""Fleets: the same cases on many nodes at once, and which node or device is not like the others."""
