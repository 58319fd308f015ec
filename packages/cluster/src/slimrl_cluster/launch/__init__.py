"""Runs of several processes: started and watched, scaled, asked how they are, written as a job for SLURM."""
