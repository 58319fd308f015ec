"""The reinforcement-learning loop."""
