"""Built-in metrics: figures derived from a record."""
