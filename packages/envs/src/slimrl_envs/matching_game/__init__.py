"""Negotiate with a partner who knows other scores."""
