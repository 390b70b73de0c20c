"""Launchers: this machine, and Slurm."""
