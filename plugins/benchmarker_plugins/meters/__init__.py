"""Built-in meters: what reads the machine's sensors."""
