"""The group `plan`: one module for each command."""
