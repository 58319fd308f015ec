"""The agent loop, self-play, and the protection of a run against failing environments."""
