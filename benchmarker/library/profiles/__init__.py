"""The views of a profile: which options each has, and the tables that it makes."""
