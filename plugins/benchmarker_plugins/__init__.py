"""Built-in plugins, registered by entry points like any other plugin."""
