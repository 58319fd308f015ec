"""Serves the inference engine over HTTP, with OpenAI's routes and routes for token ids, administration and metrics.

This package translates between text and token ids; the engine only uses token ids. It is independent of training, and
needs the extra `server`.
"""
