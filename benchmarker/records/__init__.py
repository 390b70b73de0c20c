"""What is stored: records, plans and ceilings, where they lie, and how they are selected and grouped."""
