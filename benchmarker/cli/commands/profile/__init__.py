"""The commands of `profile`."""
