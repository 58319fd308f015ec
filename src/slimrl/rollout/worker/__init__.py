"""Environments in worker processes: an environment that crashes there does not end the run."""
