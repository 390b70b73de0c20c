"""The commands as functions: they return what the commands print, raise errors, and print nothing."""
