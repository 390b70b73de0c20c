"""The group `profile`: one module for each command."""
