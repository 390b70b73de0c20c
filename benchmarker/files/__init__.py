"""File access: atomic writes, and TOML files written by users."""
