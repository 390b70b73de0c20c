"""The group `bundle`: one module for each command."""
