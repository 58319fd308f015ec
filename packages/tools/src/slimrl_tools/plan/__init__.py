"""Predicts the cost of a run before anything is loaded: memory by part, disk and time, with advice on settings."""
