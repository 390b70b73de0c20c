"""Requests over time against a server of text generation: arrivals, the client, latencies, and the highest rate."""
