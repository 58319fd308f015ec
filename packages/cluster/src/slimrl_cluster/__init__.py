"""Splits a training run into several processes, on one host, under SLURM or on a Ray cluster. See docs/deployment.md.

vLLM can be the sampler.
"""
