"""Negotiate with a partner who knows what you do not."""
