"""Built-in frameworks, one module each."""
