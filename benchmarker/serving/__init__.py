"""Requests over time against a text-generation server: arrivals, the client, latencies, and the highest rate."""
