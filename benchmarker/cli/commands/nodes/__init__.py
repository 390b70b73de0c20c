"""The group `nodes`: one module for each command."""
