"""A run as one file that can be handed in: packed, verified and unpacked."""
