"""Stored data: records, plans and ceilings, their locations, and how records are selected and grouped."""
