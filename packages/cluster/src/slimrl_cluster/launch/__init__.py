"""Runs of several processes: starting, watching and scaling them, their status, and jobs for SLURM."""
