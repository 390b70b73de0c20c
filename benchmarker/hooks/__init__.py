"""The plugin system: hook specifications, the registry, a problem's parameters, and derived metrics."""
