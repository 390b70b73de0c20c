"""The group `suite`: one module for each command."""
