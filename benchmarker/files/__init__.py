"""Files: written whole or not at all, and TOML that users write."""
