"""Power, energy and telemetry: meter readings while a case is timed, and the figures computed from them."""
