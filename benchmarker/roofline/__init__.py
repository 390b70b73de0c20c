"""The roofline model, and the peaks that vendors publish."""
