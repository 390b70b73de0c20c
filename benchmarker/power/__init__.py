"""Power, energy and telemetry: what meters read while a case is timed, and what it adds up to."""
