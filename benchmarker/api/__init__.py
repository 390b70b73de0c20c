"""The types that plugins, problems and the core share."""
