"""Built-in meters, which read the machine's sensors."""
