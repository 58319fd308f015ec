"""Plays episodes: the agent loop, self-play, and the protection of a run against failing environments."""
