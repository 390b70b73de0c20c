"""The vocabulary that plugins, problems and the core share."""
