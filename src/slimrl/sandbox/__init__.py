"""Runs code that a model wrote, so that it can do no harm. Knows nothing of models, training or what the tools are."""
