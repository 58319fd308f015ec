"""Runs environments in worker processes, so that a crash of an environment does not stop the run."""
