"""Predicts the cost of a run before anything is loaded: memory by part, and time."""
