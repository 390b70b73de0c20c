"""The commands of `bundle`."""
