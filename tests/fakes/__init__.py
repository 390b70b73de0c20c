"""Fakes of the vendors' libraries, built with the C compiler at hand, so that the real bindings run without a card."""
