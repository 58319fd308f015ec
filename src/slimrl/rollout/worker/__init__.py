"""Environments in a process of their own: what they do there cannot end the run."""
