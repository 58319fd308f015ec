"""Splits a training run into several processes, on one host, under SLURM or on a Ray cluster. See docs/deployment.md.

The sampler is slimrl's own server or vLLM.
"""
