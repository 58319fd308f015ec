"""Serves the engine over HTTP: OpenAI's routes, token-in/token-out, administration, metrics. Independent of training.

This package translates between text and token ids; the engine only uses token ids. Needs the extra `server`.
"""
