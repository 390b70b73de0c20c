"""The commands of `plan`."""
