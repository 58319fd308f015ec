"""Runs as several processes: on one host, on SLURM, on a Ray cluster; vLLM as sampler. See docs/deployment.md."""
