"""Environments: games, word puzzles, and adapters to other packages. Each folder is one environment or one adapter."""
