"""The commands of `suite`."""
