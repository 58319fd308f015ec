"""Simulations of an RL run on N devices: its speed, the age of its batches, and the cost of a step."""
