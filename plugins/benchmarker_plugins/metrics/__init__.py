"""Built-in metrics, derived from a record."""
