"""Serves the engine over HTTP: OpenAI's routes, token-in/token-out, administration, metrics. Knows nothing of training.

This package translates between text and token ids; the engine only knows token ids. Needs the extra `server`.
"""
