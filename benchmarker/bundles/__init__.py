"""Bundles: pack a run into one file for submission, verify it and unpack it."""
