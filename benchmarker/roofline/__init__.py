"""The roofline model, the peaks that vendors publish, and predictions from both."""
